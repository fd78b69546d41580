"""Where manifests come from, as ``--manifest`` names it. Pure.

A directory, a Unix socket (``unix:PATH``) or a URL (``http://``, ``https://``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from prewarm.errors import ConfigError

Scheme = Literal["unix", "http", "https"]

_PORTS: dict[str, int] = {"http": 80, "https": 443}
_UNIX = "unix:"
#: What a whole URL of the manifest ends with; its builder stands before it.
_MANIFEST = "/v1/manifest"
_HOST = re.compile(r"[A-Za-z0-9._:%-]+")
_PREFIX = re.compile(r"[!-~]*")
_EXPECTED = "a directory, unix:PATH, http://HOST:PORT or https://HOST"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A builder that answers HTTP; ``path`` is the socket's file, or what stands before ``/v1``."""

    scheme: Scheme
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        """Return the address as it is given."""
        if self.scheme == "unix":
            return f"{_UNIX}{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"

    def target(self, path: str) -> str:
        """Return what a request line names for a path of the builder's."""
        return path if self.scheme == "unix" else self.path + path


Address: TypeAlias = Path | Endpoint


def address_of(text: str) -> Address:
    """Return the address that a text names.

    Raises:
        ConfigError: it names none.
    """
    if text.startswith(_UNIX):
        return unix_endpoint(Path("/" + text.removeprefix(_UNIX).lstrip("/")))
    if "://" not in text:
        return Path(text)
    try:
        parts = urlsplit(text)
        scheme, host, port = parts.scheme, parts.hostname or "", parts.port
    except ValueError as error:
        raise _wrong(text, str(error)) from error
    path = parts.path.removesuffix("/").removesuffix(_MANIFEST).removesuffix("/")
    if scheme not in _PORTS:
        raise _wrong(text, f"{scheme}: is no scheme that is known")
    if "@" in parts.netloc:
        raise _wrong(text, "it holds a user; name the builder's token with PREWARM_TOKEN_FILE")
    if parts.query or parts.fragment or not _HOST.fullmatch(host) or not _PREFIX.fullmatch(path):
        raise _wrong(text, "it is no address of a builder")
    known: Scheme = "https" if scheme == "https" else "http"
    return Endpoint(known, host, port if port is not None else _PORTS[scheme], path)


def unix_endpoint(path: Path) -> Endpoint:
    """Return the endpoint of a Unix socket."""
    return Endpoint("unix", "localhost", 0, str(path))


def _wrong(text: str, why: str) -> ConfigError:
    shown = text if "@" not in text else text.rpartition("@")[2]
    return ConfigError(f"--manifest {shown[:200]}: {why}; expected {_EXPECTED}")
