"""Whether a private tree is usable for the user who asks: torch writes there, also on a hit.

Owns what must be writable and where code can be loaded from. Changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from prewarm.errors import NotWritable

#: Where torch locks (torch/_inductor/codecache.py ``get_lock_dir``): each start opens these files
#: for writing, so those of another user end it in its first request (pytorch #140765).
LOCKS = "inductor/locks"

_DIRECTORY = os.R_OK | os.W_OK | os.X_OK
_FILE = os.R_OK | os.W_OK


def require_usable(tree: Path, caches: Iterable[str], files: Iterable[str]) -> None:
    """Pass if this user can write where torch does, and code can be loaded from there.

    ``caches`` are the tree's directories that torch and triton get, ``files`` what is listed below
    the tree.

    Raises:
        NotWritable: it cannot be used.
    """
    flags = os.statvfs(tree).f_flag
    if flags & os.ST_RDONLY:
        raise NotWritable(
            f"{tree} lies on a file system that is mounted read-only, and torch writes locks there "
            "even on a hit; choose another directory with --into"
        )
    if flags & os.ST_NOEXEC:
        raise NotWritable(
            f"{tree} lies on a file system that is mounted noexec, so compiled code cannot be "
            "loaded from it; choose another directory with --into"
        )
    path = next(_unusable(tree, tuple(caches), files), None)
    if path is not None:
        raise NotWritable(
            f"{path}: cannot be written as user {os.geteuid()}{_owner(path)}, and torch writes "
            "locks there even on a hit; run the hook as the deployment's user or choose --into"
        )


def _unusable(tree: Path, caches: tuple[str, ...], files: Iterable[str]) -> Iterator[Path]:
    """Yield what this user cannot write, outermost first."""
    # A directory that another user put back holds what this one would add to.
    parents = {name.rpartition("/")[0] for name in files if name.startswith(caches)}
    for name in sorted({*caches, *parents}):
        if not os.access(f"{tree}/{name}", _DIRECTORY, effective_ids=True):
            yield tree / name
    locks = tree / LOCKS
    if not os.path.lexists(locks):
        return
    if not os.access(locks, _DIRECTORY, effective_ids=True):
        yield locks
        return
    for lock in os.scandir(locks):
        if not os.access(lock, _FILE, effective_ids=True) and os.path.lexists(lock):
            yield Path(lock.path)


def _owner(path: Path) -> str:
    try:
        owner = path.stat().st_uid
    except OSError:
        return ""
    return f" (it belongs to user {owner})" if owner != os.geteuid() else ""
