"""A look at a directory tree, to see that nothing in it was touched."""

from __future__ import annotations

import hashlib
from pathlib import Path

Tree = dict[str, tuple[int, int, str]]


def tree_of(root: Path, *, but: Path | None = None) -> Tree:
    """Return every path below ``root`` with its mode, inode and content, less what lies in one."""
    found: Tree = {}
    for path in sorted(root.rglob("*")):
        if but is None or (path != but and but not in path.parents):
            state = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            digest = hashlib.sha256(content).hexdigest()
            found[str(path)] = (state.st_mode, state.st_ino, digest)
    return found
