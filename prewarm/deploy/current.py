"""What a deployment reads below ``D``: ``env``, ``env.json`` and ``shim``, pointing at one tree.

Makes ``D/reports`` too, where the deployment writes its start reports; what is in it is left alone.
Owns the switch from one tree to another and the removal of trees that nobody uses any more. The
trees themselves are ``private.py``'s.

- Each of the three is replaced by rename, and only when it differs, so a hook with nothing to do
  writes nothing. What a killed one left on its way is removed by a later one.
- A tree that stopped being the current one is kept for ``KEEP_S``, and longer while a process that
  we can see was started with it.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from prewarm.deploy.private import SHIM
from prewarm.errors import NotWritable
from prewarm.store.limited_file import read_limited_file
from prewarm.store.whole_file import is_part, write_errors, write_whole

ENV = "env"
ENV_JSON = "env.json"
REPORTS = "reports"

#: How long a replaced tree is kept for servers that we cannot see, in containers or of other users.
KEEP_S = 86_400.0

#: A file or link that was on its way for this long has no living writer.
DEAD_AFTER_S = 3600.0

#: Hidden names of the link ``shim`` on its way.
_LINK = f".{SHIM}-"

_TREE = re.compile(r"[0-9a-f]{32}")
_IN_USE = re.compile(rb"/([0-9a-f]{32})/")


def point_at(tree: Path, *, env: bytes, env_json: bytes) -> None:
    """Make ``tree`` the current one of its directory.

    Raises:
        NotWritable: the directory cannot be written.
        NoSpace: it is full.
    """
    into = tree.parent
    reports = into / REPORTS
    if not reports.is_dir():
        # Without it a start only cannot be told, which it says by itself.
        with suppress(OSError):
            reports.mkdir()
            reports.chmod(0o755)
    for name, data in ((ENV_JSON, env_json), (ENV, env)):
        write_changed(into / name, data)
    link, target = into / SHIM, f"{tree.name}/{SHIM}"
    with suppress(OSError):
        before = link.readlink()
        if str(before) == target:
            return
        if _TREE.fullmatch(before.parts[0]):
            # The time at which it stopped being the current one.
            os.utime(into / before.parts[0])
    if link.is_dir() and not link.is_symlink():
        raise NotWritable(f"{link} is a directory of somebody else; choose another --into")
    hidden = into / f"{_LINK}{secrets.token_hex(8)}"
    with write_errors(link):
        hidden.symlink_to(target)
        hidden.replace(link)


def write_changed(path: Path, data: bytes) -> None:
    """Write a file whole unless it holds just this, readable by all."""
    with suppress(OSError, ValueError):
        found = path.lstat().st_mode
        if found & 0o777 == 0o644 and read_limited_file(path, len(data)) == data:
            return
    write_whole(path, data, mode=0o644)


def remove_unused(current: Path, *, now_s: float) -> tuple[Path, ...]:
    """Remove older trees beside the current one that nobody uses, and return them.

    What cannot be looked at or removed stays: no start fails for it.
    """
    old = [
        path
        for path in current.parent.iterdir()
        if _TREE.fullmatch(path.name) and path.name != current.name and _is_old(path, now_s)
    ]
    _remove_leftovers(current.parent, now_s=now_s)
    used = _trees_in_use() if old else frozenset()
    if used is None:
        return ()
    removed = []
    for path in old:
        if path.name in used:
            continue
        # Renamed first: a hook that comes back to these bundles finds the tree whole or not at all.
        hidden = path.with_name(f".filling-{secrets.token_hex(8)}")
        with suppress(OSError):
            path.rename(hidden)
            shutil.rmtree(hidden)
            removed.append(path)
    return tuple(removed)


def _remove_leftovers(into: Path, *, now_s: float) -> None:
    """Remove files and links on their way that are older than any hook at work."""
    for path in into.iterdir():
        if is_part(path.name) or path.name.startswith(_LINK):
            with suppress(OSError):
                if now_s - path.lstat().st_mtime > DEAD_AFTER_S:
                    path.unlink()


def _is_old(tree: Path, now_s: float) -> bool:
    try:
        return now_s - tree.lstat().st_mtime > KEEP_S
    except OSError:
        # Another hook has just removed it.
        return False


def _trees_in_use() -> frozenset[str] | None:
    """Return the trees in the environment of a process that we can see; None if we see none."""
    used: set[str] = set()
    try:
        processes = [path for path in Path("/proc").iterdir() if path.name.isdigit()]
    except OSError:
        return None
    for process in processes:
        with suppress(OSError):
            # By name alone: a container may see the same tree under another path.
            found = _IN_USE.findall((process / "environ").read_bytes())
            used.update(name.decode() for name in found)
    return frozenset(used) if processes else None
