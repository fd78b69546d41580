"""The settings of one run: flag, then ``PREWARM_*`` variable, then file, then default.

Owns the names of the settings and where each may come from. Every error names its source. Reads one
file at most and makes no directory. Nothing heavy is imported, since the hook starts here.

Defaults are the user's directories (XDG), the ones systemd hands out (``CacheDirectory=``,
``StateDirectory=``), or ``/var/cache/prewarm`` and ``/var/lib/prewarm`` where there is no home.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar, overload

from prewarm import setting_value
from prewarm.errors import ConfigError
from prewarm.setting_value import LISTEN, Found

SYSTEM_CONFIG = Path("/etc/prewarm/config.toml")
SYSTEM_CACHE = Path("/var/cache/prewarm")
SYSTEM_STATE = Path("/var/lib/prewarm")

#: How long a checkpoint must not change before it counts as complete.
SETTLE_S = 2.0
#: How long a bundle that no manifest names is kept for readers of an older manifest.
GRACE_S = 86_400.0

#: All logs of builds together.
LOGS_LIMIT_BYTES = 256 << 20

#: A GPU of which others use more than this share has no build begun on it.
GPU_BUSY_PERCENT = 25.0

#: The service's Unix socket, in the runtime directory or the state directory.
SOCKET_NAME = "prewarm.sock"


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
    cpu_workers: int = 1
    gpu_busy_percent: float = GPU_BUSY_PERCENT
    proof_user: str | None = None
    socket: Path | None = None
    listen: str = LISTEN
    token_file: Path | None = None
    manifest: str | None = None
    trust: tuple[str, ...] = ()


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
        cpu_workers=_as(int, given.get("cpu_workers"), 1),
        gpu_busy_percent=_as(float, given.get("gpu_busy_percent"), GPU_BUSY_PERCENT),
        proof_user=_as(str, given.get("proof_user")),
        socket=_as(Path, given.get("socket")) or _runtime_socket(environ),
        listen=_as(str, given.get("listen")) or LISTEN,
        token_file=_as(Path, given.get("token_file")),
        manifest=_as(str, given.get("manifest")),
        trust=_as(tuple, given.get("trust"), ()),
    )


def user_cache_dir(environ: Mapping[str, str]) -> Path:
    """Return the directory for caches of this user or systemd service."""
    return own_cache_dir(environ) or SYSTEM_CACHE


def own_cache_dir(environ: Mapping[str, str]) -> Path | None:
    """Return the same, None where there is neither a home nor a service."""
    return _user_dir(environ, "CACHE_DIRECTORY", "XDG_CACHE_HOME", ".cache")


# -- where a value comes from


def _find(
    name: str,
    flags: Mapping[str, object | None],
    environ: Mapping[str, str],
    from_file: Mapping[str, Found],
) -> Found | None:
    flag = flags.get(name)
    # An option that may be given several times is an empty tuple without one.
    if flag is not None and flag != ():
        return Found(flag, "--" + name.replace("_", "-"), Path.cwd())
    variable = "PREWARM_" + name.upper()
    if environ.get(variable):
        return Found(environ[variable], variable, Path.cwd())
    return from_file.get(name)


def _config_file(
    flag: object | None, environ: Mapping[str, str], *, home: Path | None
) -> Path | None:
    """Return the configuration file to read; one that was named must be there."""
    named = [(flag, "--config"), (environ.get("PREWARM_CONFIG") or None, "PREWARM_CONFIG")]
    for value, source in named:
        if value is not None:
            path = setting_value.path(Found(value, source, Path.cwd()), home)
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


def _read_file(path: Path | None) -> dict[str, Found]:
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
        name: Found(value, f"{path}: {name}", path.parent.absolute())
        for name, value in table.items()
    }


def _unknown(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, _SETTINGS, n=1, cutoff=0.5)
    hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(_SETTINGS)}"
    return f"{name}: unknown key; {hint}"


_Parse: TypeAlias = Callable[[Found, Path | None], object]

_SETTINGS: dict[str, _Parse] = {
    "registry": setting_value.path,
    "cache_dir": setting_value.path,
    "state_dir": setting_value.path,
    "builder": setting_value.builder,
    "settle_s": setting_value.seconds,
    "grace_s": setting_value.seconds,
    "cache_limit_bytes": setting_value.limit,
    "unused_s": setting_value.seconds,
    "logs_limit_bytes": setting_value.limit,
    "signing_key": setting_value.path,
    "child_memory_bytes": setting_value.size,
    "cpu_workers": setting_value.count,
    "gpu_busy_percent": setting_value.percent,
    "proof_user": setting_value.user,
    "socket": setting_value.path,
    "listen": setting_value.address,
    "token_file": setting_value.path,
    "manifest": setting_value.manifest,
    "trust": setting_value.trust,
}


# -- defaults


def _runtime_socket(environ: Mapping[str, str]) -> Path | None:
    """Return where systemd's ``RuntimeDirectory=`` has the socket, None for the state directory."""
    runtime = environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    return Path(runtime) / SOCKET_NAME if runtime else None


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
