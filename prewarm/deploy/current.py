"""What a deployment reads below ``D``: ``env``, ``env.json`` and ``shim``, pointing at one tree.

Owns the switch from one tree to another and the removal of trees that nobody uses any more. The
trees themselves are ``private.py``'s.

- Each of the three is replaced by rename, and only when it differs, so a hook with nothing to do
  writes nothing.
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
from prewarm.store.whole_file import write_errors, write_whole

ENV = "env"
ENV_JSON = "env.json"

#: How long a replaced tree is kept for servers that we cannot see, in containers or of other users.
KEEP_S = 86_400.0

_TREE = re.compile(r"[0-9a-f]{32}")


def point_at(tree: Path, *, env: bytes, env_json: bytes) -> None:
    """Make ``tree`` the current one of its directory.

    Raises:
        NotWritable: the directory cannot be written.
        NoSpace: it is full.
    """
    into = tree.parent
    for name, data in ((ENV_JSON, env_json), (ENV, env)):
        write_changed(into / name, data)
    link, target = into / SHIM, f"{tree.name}/{SHIM}"
    with suppress(OSError):
        before = link.readlink()
        if str(before) == target:
            return
        # The time at which it stopped being the current one.
        os.utime(into / before.parts[0])
    if link.is_dir() and not link.is_symlink():
        raise NotWritable(f"{link} is a directory of somebody else; choose another --into")
    hidden = into / f".{SHIM}-{secrets.token_hex(8)}"
    with write_errors(link):
        hidden.symlink_to(target)
        hidden.replace(link)


def write_changed(path: Path, data: bytes) -> None:
    """Write a file whole unless it holds just this, readable by all."""
    with suppress(OSError):
        if path.stat().st_mode & 0o777 == 0o644 and path.read_bytes() == data:
            return
    write_whole(path, data, mode=0o644)


def remove_unused(current: Path, *, now_s: float) -> tuple[Path, ...]:
    """Remove older trees beside the current one that nobody uses, and return them."""
    old = [
        path
        for path in current.parent.iterdir()
        if _TREE.fullmatch(path.name)
        and path.name != current.name
        and now_s - path.stat().st_mtime > KEEP_S
    ]
    if not old:
        return ()
    used = _trees_in_use(current.parent)
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


def _trees_in_use(into: Path) -> set[str]:
    """Return the trees that stand in the environment of a process that we can see."""
    wanted = re.compile(re.escape(os.fsencode(into)) + rb"/([0-9a-f]{32})/")
    used: set[str] = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                found = wanted.findall((process / "environ").read_bytes())
                used.update(name.decode() for name in found)
    return used
