"""What the value of a setting must be: each kind is a function from what was given to what is used.

Pure. Each raises ``ConfigError`` with the place that gave the value.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

from prewarm.errors import ConfigError

#: Where the service answers over TCP; "off" is nowhere.
LISTEN = "127.0.0.1:7791"

#: How a public key is written: with its kind, or as bare hexadecimal digits or base64.
KEY = re.compile(r"ed25519:.*|[0-9A-Fa-f]{64}|[A-Za-z0-9+/]{43}=", re.DOTALL)

#: More workers than this are a slip of the finger.
MOST = 256

BUILDER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_SIZE = re.compile(r"(\d+)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Found:
    """A value as it was given, the place that gave it, and the directory that it is relative to."""

    value: object
    source: str
    base: Path


def path(found: Found, home: Path | None) -> Path:
    """Return an absolute path; ``~`` is the home directory."""
    value = found.value
    if isinstance(value, Path):
        value = str(value)
    if not isinstance(value, str) or not value or "\0" in value:
        raise ConfigError(f"{found.source}: {value!r} is no path")
    if value == "~" or value.startswith("~/"):
        if home is None:
            raise ConfigError(
                f"{found.source}: {value} needs HOME, which is not set; name it in full"
            )
        value = str(home) + value[1:]
    return Path(os.path.normpath(found.base / value))


def address(found: Found, home: Path | None) -> str:
    """Return ``HOST:PORT`` or "off"."""
    value = found.value
    host, _, port = str(value).rpartition(":")
    if value != "off" and not (host and port.isdecimal() and int(port) < 1 << 16):
        raise ConfigError(
            f'{found.source}: {value!r} is no address; write HOST:PORT, such as {LISTEN}, or "off"'
        )
    return str(value)


def manifest(found: Found, home: Path | None) -> str:
    """Return a directory as an absolute path, or an address as it was given."""
    value = str(found.value)
    if "://" in value or value.startswith("unix:"):
        return value
    return str(path(found, home))


def trust(found: Found, home: Path | None) -> tuple[str, ...]:
    """Return public keys, and the absolute paths of files that hold some."""
    value = found.value
    given = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) for one in given):
        raise ConfigError(f"{found.source}: {value!r} is no list of keys or of files with keys")
    return tuple(
        one if KEY.fullmatch(one) else str(path(Found(one, found.source, found.base), home))
        for one in given
    )


def builder(found: Found, home: Path | None) -> str:
    """Return a name that can be part of a file name."""
    if not isinstance(found.value, str) or not BUILDER.fullmatch(found.value):
        raise ConfigError(
            f"{found.source}: {found.value!r} is no builder name; use up to 64 letters, digits, "
            "`.`, `_` and `-`, not beginning with a dot"
        )
    return found.value


def user(found: Found, home: Path | None) -> str:
    """Return the name of a user."""
    if not isinstance(found.value, str) or not found.value.strip():
        raise ConfigError(f"{found.source}: {found.value!r} is no user name")
    return found.value.strip()


def seconds(found: Found, home: Path | None) -> float:
    """Return a number of seconds."""
    try:
        if isinstance(found.value, bool) or not isinstance(found.value, str | int | float):
            raise ValueError
        seconds = float(found.value)
        if not (math.isfinite(seconds) and seconds >= 0):
            raise ValueError
    except ValueError:
        raise ConfigError(
            f"{found.source}: {found.value!r} is no number of seconds; give one such as 2.5"
        ) from None
    return seconds


def count(found: Found, home: Path | None) -> int:
    """Return how many there are of something, at least one."""
    text = str(found.value).strip()
    if isinstance(found.value, bool) or not text.isdecimal() or not 0 < int(text) <= MOST:
        raise ConfigError(
            f"{found.source}: {found.value!r} is no count; give a number from 1 to {MOST}"
        )
    return int(text)


def percent(found: Found, home: Path | None) -> float:
    """Return a share in percent."""
    try:
        if isinstance(found.value, bool) or not 0 <= float(str(found.value)) <= 100:
            raise ValueError
    except ValueError:
        raise ConfigError(
            f"{found.source}: {found.value!r} is no percentage; give a number from 0 to 100"
        ) from None
    return float(str(found.value))


def limit(found: Found, home: Path | None) -> int:
    """Return a size, or 0 for no limit."""
    return 0 if str(found.value).strip() == "0" else size(found, home)


def size(found: Found, home: Path | None) -> int:
    """Return a size in bytes, from a number or a text such as 16G."""
    value = found.value
    match = _SIZE.fullmatch(str(value).strip()) if not isinstance(value, bool | float) else None
    size = int(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " ") if match else 0
    if size <= 0:
        raise ConfigError(f"{found.source}: {value!r} is no size; give bytes or a size such as 16G")
    return size
