"""Doctor's checks of the directories: writable, on which file system, with how much room, readable.

Owns the limits of room. Probes by making and removing a hidden file; makes no directory that is not
there.
"""

from __future__ import annotations

import os
import pwd
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from prewarm.build.proof_user import can_use
from prewarm.cli.finding import Finding
from prewarm.config import Settings
from prewarm.file_system import file_system, network_file_system, read_mount_table

#: Less room than this fails soon: a bundle of a large model and its unpacked copies.
LITTLE_ROOM_BYTES = 2 << 30

_GIB = 1 << 30


def check_places(
    settings: Settings, environ: Mapping[str, str], interpreter: Sequence[str] = ()
) -> list[Finding]:
    """Check every directory that prewarm reads or writes, and the user that proofs run as."""
    return [
        _registry(settings),
        _writable("cache_dir", settings.cache_dir, flag="--cache-dir"),
        _writable("state_dir", settings.state_dir, flag="--state-dir"),
        *_database_place(settings.state_dir),
        _temporary(environ),
        _proof_user(settings, interpreter or (sys.executable,)),
    ]


def _registry(settings: Settings) -> Finding:
    registry = settings.registry
    if registry is None:
        return Finding(
            "registry", "warn", "none is set", "name it with --registry or PREWARM_REGISTRY"
        )
    try:
        is_directory = registry.is_dir()
    except PermissionError:
        is_directory = True
    if not is_directory:
        return Finding(
            "registry", "fail", f"{registry} is no directory", "name another with --registry"
        )
    if not os.access(registry, os.R_OK | os.X_OK, effective_ids=True):
        return Finding(
            "registry",
            "fail",
            f"{registry} cannot be read as user {os.geteuid()}",
            "give this user read access to it",
        )
    return Finding("registry", "ok", str(registry))


def _writable(check: str, path: Path, *, flag: str) -> Finding:
    place = next(parent for parent in (path, *path.parents) if os.path.lexists(parent))
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".prewarm-doctor-"):
            pass
    except OSError as error:
        return Finding(
            check,
            "fail",
            f"{path}: {place} cannot be written ({error.strerror})",
            f"give user {os.geteuid()} write access to it, or choose another with {flag}",
        )
    found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize
    kind, _ = file_system(place.resolve(), read_mount_table())
    told = f"{path} ({kind or 'unknown file system'}, {free / _GIB:.1f} GiB free)"
    if free < LITTLE_ROOM_BYTES:
        return Finding(check, "warn", told, f"free some space there, or choose another with {flag}")
    return Finding(check, "ok", told)


def _database_place(state_dir: Path) -> list[Finding]:
    kind = network_file_system(state_dir)
    if kind is None:
        return []
    return [
        Finding(
            "database",
            "fail",
            f"{state_dir} lies on {kind}, where SQLite corrupts",
            "choose a local disk with --state-dir",
        )
    ]


def _temporary(environ: Mapping[str, str]) -> Finding:
    home = environ.get("HOME")
    try:
        temporary = tempfile.gettempdir()
    except OSError as error:
        return Finding(
            "HOME, TMPDIR",
            "fail",
            f"no temporary directory: {error}",
            "set TMPDIR to a writable one",
        )
    if not home:
        return Finding(
            "HOME, TMPDIR",
            "warn",
            f"HOME is not set; TMPDIR is {temporary}",
            "fine as long as --cache-dir and --state-dir are given",
        )
    if not os.access(home, os.W_OK, effective_ids=True):
        return Finding(
            "HOME, TMPDIR",
            "warn",
            f"{home} cannot be written; TMPDIR is {temporary}",
            "set HOME to a directory that can, since loaders' libraries cache there",
        )
    return Finding("HOME, TMPDIR", "ok", f"{home}, {temporary}")


def _proof_user(settings: Settings, interpreter: Sequence[str]) -> Finding:
    """Tell whether a proof can run as somebody else, as a deployment does."""
    if os.geteuid() != 0:
        return Finding(
            "proof user", "ok", f"proofs run as this user ({os.geteuid()}); only root can change it"
        )
    name = settings.proof_user or "nobody"
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        return Finding(
            "proof user",
            "warn",
            f"no user {name!r}, so proofs run as root",
            "name one with PREWARM_PROOF_USER",
        )
    if not _may_change_user():
        return Finding(
            "proof user",
            "warn",
            "this root may not change users (no CAP_SETUID), so proofs run as root",
            "give the container SETUID and SETGID, or run prewarm as the deployment's user",
        )
    if not can_use(user.pw_uid, interpreter, ()):
        return Finding(
            "proof user",
            "warn",
            f"{name} cannot run {interpreter[0]}, so proofs run as root",
            "put the interpreter where every user can read it, to prove for other users too",
        )
    return Finding("proof user", "ok", f"proofs can run as {name} ({user.pw_uid})")


def _may_change_user() -> bool:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        effective = next(line.split()[1] for line in lines if line.startswith("CapEff:"))
    except (OSError, StopIteration, IndexError):
        return True
    # CAP_SETGID and CAP_SETUID of linux/capability.h.
    return int(effective, 16) & 0xC0 == 0xC0
