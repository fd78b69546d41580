"""Who may read and who may write. Pure.

- The Unix socket: both; its file's mode says who may connect.
- Loopback: reading. A request that was forwarded comes from elsewhere, whatever its address, and
  one for another host's name may be a web page's (DNS rebinding).
- Anything else, and writing from it: with the token.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping

from prewarm.serve.peer import Peer
from prewarm.serve.refused import Refused

_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


def check_access(
    peer: Peer, headers: Mapping[str, str], *, writes: bool, token: str | None
) -> None:
    """Pass if the peer may do this.

    Raises:
        Refused: it may not, or may with the token alone.
    """
    if peer.uid is not None:
        return
    given = headers.get("authorization")
    if given is not None and token is not None and _is_token(given, token):
        return
    if given is None and not writes and _is_from_here(peer, headers):
        return
    if token is None:
        what = "writing" if writes else "reading from elsewhere than this machine"
        raise Refused(
            f"{what} needs a token and this builder has none; use its Unix socket, or set a token",
            code="forbidden",
        )
    found = "no token came" if given is None else "the token is not this builder's"
    raise Refused(
        f"{found}; send `Authorization: Bearer TOKEN`, or use the builder's Unix socket",
        code="token_needed",
        headers={"www-authenticate": "Bearer"},
    )


def _is_token(given: str, token: str) -> bool:
    scheme, _, value = given.partition(" ")
    right = hmac.compare_digest(value.strip().encode(), token.encode())
    return scheme.lower() == "bearer" and right


def _is_from_here(peer: Peer, headers: Mapping[str, str]) -> bool:
    forwarded = any(name in headers for name in _FORWARDED)
    return peer.is_loopback and not forwarded and _is_here(headers.get("host", ""))


def _is_here(host: str) -> bool:
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.lower() in ("", "localhost")
    return True
