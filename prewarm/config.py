"""The settings of one run: flag, then ``PREWARM_*`` variable, then file, then default.

Owns the names of the settings and where each may come from. Every error names its source. Reads one
file at most and makes no directory. Nothing heavy is imported, since the hook starts here.

Defaults are the user's directories (XDG), the ones systemd hands out (``CacheDirectory=``,
``StateDirectory=``), or ``/var/cache/prewarm`` and ``/var/lib/prewarm`` where there is no home.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar, overload

from prewarm.errors import ConfigError

SYSTEM_CONFIG = Path("/etc/prewarm/config.toml")
SYSTEM_CACHE = Path("/var/cache/prewarm")
SYSTEM_STATE = Path("/var/lib/prewarm")

#: How long a checkpoint must not change before it counts as complete.
SETTLE_S = 2.0
#: How long a bundle that no manifest names is kept for readers of an older manifest.
GRACE_S = 86_400.0

#: All logs of builds together.
LOGS_LIMIT_BYTES = 256 << 20

_BUILDER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_BYTES = re.compile(r"(\d+)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Settings:
    """Where a builder or reader works, and its few numbers."""

    registry: Path | None
    cache_dir: Path
    state_dir: Path
    builder: str
    settle_s: float = SETTLE_S
    grace_s: float = GRACE_S
    cache_limit_bytes: int = 0
    unused_s: float = 0.0
    logs_limit_bytes: int = LOGS_LIMIT_BYTES
    signing_key: Path | None = None
    child_memory_bytes: int | None = None
    proof_user: str | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """A value as it was given, the place that gave it, and the directory that it is relative to."""

    value: object
    source: str
    base: Path


def load_settings(flags: Mapping[str, object | None], environ: Mapping[str, str]) -> Settings:
    """Settle every setting from flags (by setting name, plus ``config``), variables and file.

    Raises:
        ConfigError: a value or key is wrong, or a configuration file that was named is not there.
    """
    home = _home(environ)
    from_file = _read_file(_config_file(flags.get("config"), environ, home=home))
    given: dict[str, object] = {}
    for name, parse in _SETTINGS.items():
        found = _find(name, flags, environ, from_file)
        if found is not None:
            given[name] = parse(found, home)
    return Settings(
        registry=_as(Path, given.get("registry")),
        cache_dir=_as(Path, given.get("cache_dir")) or user_cache_dir(environ),
        state_dir=_as(Path, given.get("state_dir")) or _user_state_dir(environ),
        builder=_as(str, given.get("builder")) or _host_builder(),
        settle_s=_as(float, given.get("settle_s"), SETTLE_S),
        grace_s=_as(float, given.get("grace_s"), GRACE_S),
        cache_limit_bytes=_as(int, given.get("cache_limit_bytes"), 0),
        unused_s=_as(float, given.get("unused_s"), 0.0),
        logs_limit_bytes=_as(int, given.get("logs_limit_bytes"), LOGS_LIMIT_BYTES),
        signing_key=_as(Path, given.get("signing_key")),
        child_memory_bytes=_as(int, given.get("child_memory_bytes")),
        proof_user=_as(str, given.get("proof_user")),
    )


def user_cache_dir(environ: Mapping[str, str]) -> Path:
    """Return the directory for caches of this user or systemd service."""
    return _user_dir(environ, "CACHE_DIRECTORY", "XDG_CACHE_HOME", ".cache") or SYSTEM_CACHE


# -- where a value comes from


def _find(
    name: str,
    flags: Mapping[str, object | None],
    environ: Mapping[str, str],
    from_file: Mapping[str, _Found],
) -> _Found | None:
    flag = flags.get(name)
    if flag is not None:
        return _Found(flag, "--" + name.replace("_", "-"), Path.cwd())
    variable = "PREWARM_" + name.upper()
    if environ.get(variable):
        return _Found(environ[variable], variable, Path.cwd())
    return from_file.get(name)


def _config_file(
    flag: object | None, environ: Mapping[str, str], *, home: Path | None
) -> Path | None:
    """Return the configuration file to read; one that was named must be there."""
    named = [(flag, "--config"), (environ.get("PREWARM_CONFIG") or None, "PREWARM_CONFIG")]
    for value, source in named:
        if value is not None:
            path = _path(_Found(value, source, Path.cwd()), home)
            if not _is_file(path):
                raise ConfigError(f"{source}: {path} is no file that can be read; name a TOML file")
            return path
    user = _user_dir(environ, "CONFIGURATION_DIRECTORY", "XDG_CONFIG_HOME", ".config")
    places = [SYSTEM_CONFIG] if user is None else [user / "config.toml", SYSTEM_CONFIG]
    return next((path for path in places if _is_file(path)), None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except PermissionError:
        # A directory that is closed to this user, such as somebody else's configuration.
        return False


def _read_file(path: Path | None) -> dict[str, _Found]:
    if path is None:
        return {}
    import tomllib

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as TOML: {error}") from error
    unknown = [_unknown(name) for name in table if name not in _SETTINGS]
    if unknown:
        raise ConfigError(f"{path}: {'; '.join(unknown)}")
    return {
        name: _Found(value, f"{path}: {name}", path.parent.absolute())
        for name, value in table.items()
    }


def _unknown(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, _SETTINGS, n=1, cutoff=0.5)
    hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(_SETTINGS)}"
    return f"{name}: unknown key; {hint}"


# -- what a value must be


def _path(found: _Found, home: Path | None) -> Path:
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


def _builder(found: _Found, home: Path | None) -> str:
    if not isinstance(found.value, str) or not _BUILDER.fullmatch(found.value):
        raise ConfigError(
            f"{found.source}: {found.value!r} is no builder name; use up to 64 letters, digits, "
            "`.`, `_` and `-`, not beginning with a dot"
        )
    return found.value


def _user(found: _Found, home: Path | None) -> str:
    if not isinstance(found.value, str) or not found.value.strip():
        raise ConfigError(f"{found.source}: {found.value!r} is no user name")
    return found.value.strip()


def _seconds(found: _Found, home: Path | None) -> float:
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


def _limit(found: _Found, home: Path | None) -> int:
    """Return a size, or 0 for no limit."""
    return 0 if str(found.value).strip() == "0" else _bytes(found, home)


def _bytes(found: _Found, home: Path | None) -> int:
    value = found.value
    match = _BYTES.fullmatch(str(value).strip()) if not isinstance(value, bool | float) else None
    size = int(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " ") if match else 0
    if size <= 0:
        raise ConfigError(f"{found.source}: {value!r} is no size; give bytes or a size such as 16G")
    return size


_Parse: TypeAlias = Callable[[_Found, Path | None], object]

_SETTINGS: dict[str, _Parse] = {
    "registry": _path,
    "cache_dir": _path,
    "state_dir": _path,
    "builder": _builder,
    "settle_s": _seconds,
    "grace_s": _seconds,
    "cache_limit_bytes": _limit,
    "unused_s": _seconds,
    "logs_limit_bytes": _limit,
    "signing_key": _path,
    "child_memory_bytes": _bytes,
    "proof_user": _user,
}


# -- defaults


def _user_state_dir(environ: Mapping[str, str]) -> Path:
    return _user_dir(environ, "STATE_DIRECTORY", "XDG_STATE_HOME", ".local/state") or SYSTEM_STATE


def _user_dir(environ: Mapping[str, str], systemd: str, xdg: str, below_home: str) -> Path | None:
    # systemd separates several directories by colons; the first is the unit's main one.
    given = environ.get(systemd, "").split(":")[0]
    if given:
        return Path(given)
    base = environ.get(xdg, "")
    if base.startswith("/"):
        return Path(base) / "prewarm"
    home = _home(environ)
    return None if home is None else home / below_home / "prewarm"


def _home(environ: Mapping[str, str]) -> Path | None:
    home = environ.get("HOME", "")
    return Path(home) if home.startswith("/") else None


_T = TypeVar("_T")


@overload
def _as(kind: type[_T], value: object) -> _T | None: ...
@overload
def _as(kind: type[_T], value: object, default: _T) -> _T: ...
def _as(kind: type[_T], value: object, default: _T | None = None) -> _T | None:
    """Narrow what a parser returned; a parser and its field are of one type."""
    return value if isinstance(value, kind) else default


def _host_builder() -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", os.uname().nodename).lstrip(".")[:64]
    return name or "builder"
