"""What stands in a deployment's caches that its hook did not put there.

Owns the look at a private tree against its listing, and the kinds of files. torch takes locks on
every hit, so they are not counted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prewarm.deploy.listing import Listing, changed_files
from prewarm.deploy.private import CACHES

_PASSED_OVER = frozenset({"locks", "__pycache__"})
_NO_ENTRIES = (".lock", ".pyc")

#: Kinds by what stands in a name, as torch 2.9 to 2.14 and triton 3 lay their caches out.
_DIRECTORIES = {"fxgraph": "graphs", "aotautograd": "aot_entries"}
_SUFFIXES = {
    ".so": "cpp_kernels",
    ".cubin": "triton_kernels",
    ".hsaco": "triton_kernels",
    ".best_config": "tuned_configs",
}
KINDS = ("graphs", "aot_entries", "cpp_kernels", "triton_kernels", "tuned_configs", "other")


@dataclass(frozen=True, slots=True)
class Added:
    """The files that were added: how many, of which kinds, and how many listed ones changed."""

    files: int
    size_bytes: int
    kinds: dict[str, int]
    changed: int

    def to_dict(self) -> dict[str, object]:
        """Return them as they stand in JSON."""
        return {
            "files": self.files,
            "size_bytes": self.size_bytes,
            "kinds": self.kinds,
            "changed": self.changed,
        }


def added_files(tree: Path, listing: Listing) -> Added:
    """Compare a tree's caches with its listing; what vanishes meanwhile is not counted."""
    kinds: Counter[str] = Counter()
    size_bytes = 0
    for name, path in _files(tree):
        if name in listing.files:
            continue
        try:
            size_bytes += path.lstat().st_size
        except OSError:
            continue
        kinds[_kind(name)] += 1
    caches = tuple(f"{cache}/" for cache in CACHES)
    changed = [name for name in changed_files(tree, listing) if name.startswith(caches)]
    return Added(
        kinds.total(),
        size_bytes,
        {kind: kinds[kind] for kind in KINDS if kinds[kind]},
        len(changed),
    )


def _files(tree: Path) -> Iterator[tuple[str, Path]]:
    for cache in CACHES:
        for directory, below, names in os.walk(tree / cache):
            below[:] = [name for name in below if name not in _PASSED_OVER]
            for name in names:
                path = Path(directory, name)
                if not name.endswith(_NO_ENTRIES):
                    yield path.relative_to(tree).as_posix(), path


def _kind(name: str) -> str:
    parts = name.split("/")
    for directory, kind in _DIRECTORIES.items():
        if directory in parts[:-1]:
            return kind
    return _SUFFIXES.get(Path(name).suffix, "other")
