from __future__ import annotations

import pytest

from prewarm.serve.access import check_access
from prewarm.serve.peer import Peer
from prewarm.serve.refused import Refused

TOKEN = "a-token-for-the-tests"
UNIX, LOOPBACK, FAR = Peer(uid=1000), Peer(address="127.0.0.1"), Peer(address="192.0.2.1")
GIVEN = {"authorization": f"Bearer {TOKEN}"}


def _code(peer: Peer, headers: dict[str, str], *, writes: bool, token: str | None) -> str | None:
    try:
        check_access(peer, headers, writes=writes, token=token)
    except Refused as error:
        return error.code
    return None


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("token", [None, TOKEN])
def test_the_unix_socket_may_do_all(writes: bool, token: str | None) -> None:
    assert _code(UNIX, {}, writes=writes, token=token) is None


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize(
    "host", ["", "localhost:1", "LOCALHOST", "127.0.0.1:8", "[::1]:8", "[::1]"]
)
def test_loopback_may_read(address: str, host: str) -> None:
    peer = Peer(address=address)
    assert _code(peer, {"host": host}, writes=False, token=TOKEN) is None
    assert _code(peer, {"host": host}, writes=False, token=None) is None


@pytest.mark.parametrize(
    ("peer", "headers", "writes"),
    [
        (LOOPBACK, {}, True),
        (LOOPBACK, {"x-forwarded-for": "192.0.2.1"}, False),
        (LOOPBACK, {"forwarded": "for=127.0.0.1"}, False),
        (LOOPBACK, {"host": "evil.example"}, False),
        (FAR, {}, False),
        (FAR, {"host": "localhost"}, False),
        (FAR, {}, True),
        (Peer(), {}, False),
        (Peer(address="rubbish"), {}, False),
        (Peer(address="::ffff:192.0.2.1"), {}, False),
    ],
)
def test_all_else_needs_the_token(peer: Peer, headers: dict[str, str], writes: bool) -> None:
    assert _code(peer, headers, writes=writes, token=TOKEN) == "token_needed"
    assert _code(peer, headers, writes=writes, token=None) == "forbidden"
    assert _code(peer, {**headers, **GIVEN}, writes=writes, token=TOKEN) is None
    assert _code(peer, {**headers, **GIVEN}, writes=writes, token=None) == "forbidden"


@pytest.mark.parametrize(
    "given",
    ["", "Bearer", "Bearer ", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}",
     f"Bearer {TOKEN} {TOKEN}", f"{TOKEN}", "Bearer ü"],
)  # fmt: skip
@pytest.mark.parametrize("peer", [FAR, LOOPBACK])
def test_another_token_is_none(given: str, peer: Peer) -> None:
    assert _code(peer, {"authorization": given}, writes=False, token=TOKEN) == "token_needed"


def test_the_scheme_is_told_to_who_has_no_token() -> None:
    with pytest.raises(Refused) as raised:
        check_access(FAR, {}, writes=False, token=TOKEN)
    assert raised.value.headers == {"www-authenticate": "Bearer"}
    assert TOKEN not in str(raised.value)
