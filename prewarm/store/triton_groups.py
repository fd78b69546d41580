"""Triton's group files: which list a kernel's artifacts by absolute path, and must follow the tree.

Owns pointing them at the place where a tree lies. Triton keeps each kernel in a folder with its
artifacts and one ``__grp__<kernel>.json`` of ``{"child_paths": {name: path}}`` (runtime/cache.py,
``FileCacheManager.get_group``, seen in 3.6). In a tree that was moved the paths lead nowhere, and
every kernel that is not in torch's graph entry is compiled again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

#: The folder of a tree that is Triton's cache.
FOLDER = "triton"
PREFIX, SUFFIX = "__grp__", ".json"

#: A group lists a dozen files; what is larger is not Triton's.
_LIMIT_BYTES = 1 << 20


def point_groups(tree: Path, place: Path) -> tuple[str, ...]:
    """Let the group files of ``tree`` name their artifacts as they lie once it is at ``place``.

    Returns the names, relative to the tree, of the files that were written anew; one that is no
    group is left as it is.
    """
    return tuple(name for name in _groups(tree) if _point(tree / name, place / name))


def _groups(tree: Path) -> Iterator[str]:
    if not (tree / FOLDER).is_dir():
        return
    with os.scandir(tree / FOLDER) as kernels:
        folders = sorted(kernel.name for kernel in kernels if kernel.is_dir(follow_symlinks=False))
    for folder in folders:
        for file in sorted((tree / FOLDER / folder).glob(f"{PREFIX}*{SUFFIX}")):
            yield f"{FOLDER}/{folder}/{file.name}"


def _point(file: Path, at: Path) -> bool:
    if file.is_symlink() or file.stat().st_size > _LIMIT_BYTES:
        return False
    text = file.read_text("utf-8", "surrogateescape")
    try:
        children = json.loads(text)["child_paths"]
        paths = {child: str(at.parent / Path(path).name) for child, path in children.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
    if paths == children:
        return False
    file.write_text(json.dumps({"child_paths": paths}), "utf-8", "surrogateescape")
    return True
