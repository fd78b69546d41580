"""Whether the registry is really there: one that was unmounted must not be taken for an empty one.

Owns the judgement, pure, and the look at the root that it needs. Rules:

- A root that is missing, or whose mount is gone, says nothing about the checkpoints in it.
- One that became another directory and is empty is taken for a mount point that waits for its disk.
- A mount point inside the registry that is bare says nothing about what lies below it.
- What was mounted there before decides, not device numbers: those change with each mount.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from prewarm.file_system import mount_of, mount_points_below, read_mount_table


@dataclass(frozen=True, slots=True)
class RootSeen:
    """The root as one look found it: which directory, on which mount, and the mounts inside it."""

    path: str
    device: int
    inode: int
    mount_point: str
    mounts_inside: frozenset[str]

    def is_same_directory(self, other: RootSeen) -> bool:
        """Say whether two looks saw one directory."""
        return (self.path, self.device, self.inode) == (other.path, other.device, other.inode)

    def to_dict(self) -> dict[str, Any]:
        """Return the look as plain values, for a file."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return plain | {"mounts_inside": sorted(self.mounts_inside)}

    @classmethod
    def from_dict(cls, value: object) -> Self | None:
        """Read what ``to_dict`` wrote; None for anything else."""
        if not isinstance(value, Mapping) or set(value) != set(cls.__slots__):
            return None
        kinds = {"device": int, "inode": int, "mounts_inside": list}
        if not all(isinstance(value[name], kinds.get(name, str)) for name in value):
            return None
        inside = frozenset(str(point) for point in value["mounts_inside"])
        return cls(**{**value, "mounts_inside": inside})


@dataclass(frozen=True, slots=True)
class Presence:
    """The judgement: ``there``, or why nothing may be concluded from what is missing.

    ``seen`` is what to remember for the next look. ``bare`` are mount points inside the registry at
    which nothing is mounted now. ``reason`` is a line for anything that is not as it should be.
    """

    state: Literal["there", "gone", "unmounted", "empty"]
    reason: str | None = None
    seen: RootSeen | None = None
    bare: frozenset[str] = frozenset()

    @property
    def is_there(self) -> bool:
        """Whether the registry can be looked at."""
        return self.state == "there"

    def can_tell(self, path: Path) -> bool:
        """Say whether a checkpoint that is missing at ``path``, a real path, is really gone."""
        return self.is_there and not any(path.is_relative_to(point) for point in self.bare)


def registry_is_there(root: Path, remembered: RootSeen | None) -> Presence:
    """Look at the root and judge it by what was remembered of the last good look."""
    try:
        seen, is_empty = _look(root)
    except OSError as error:
        told = f"registry {root} is not there ({error.strerror}); nothing is retired until it is"
        return Presence("gone", told, remembered)
    return judge_root(root, seen, is_empty=is_empty, remembered=remembered)


def judge_root(
    root: Path, seen: RootSeen, *, is_empty: bool, remembered: RootSeen | None
) -> Presence:
    """Judge what a look found by what was remembered."""
    if remembered is None or remembered.path != seen.path:  # a link that was pointed elsewhere
        return Presence("there", None, seen)
    if _is_proper_parent(seen.mount_point, remembered.mount_point):
        told = (
            f"registry {root}: nothing is mounted at {remembered.mount_point} any more; "
            "nothing is retired until it is mounted again"
        )
        return Presence("unmounted", told, remembered)
    if is_empty and not seen.is_same_directory(remembered):
        told = (
            f"registry {root} is another directory than before, and empty, as if a disk were not "
            "mounted yet; nothing is retired until something lies in it"
        )
        return Presence("empty", told, remembered)
    bare = remembered.mounts_inside - seen.mounts_inside
    reason = None
    if bare:
        reason = (
            f"registry {root}: nothing is mounted at {', '.join(sorted(bare))} any more; "
            "nothing below is retired until it is mounted again"
        )
    # What is bare stays remembered, or the next look would take it for empty.
    return Presence(
        "there", reason, replace(seen, mounts_inside=seen.mounts_inside | bare), frozenset(bare)
    )


def _look(root: Path) -> tuple[RootSeen, bool]:
    real = os.path.realpath(root)
    with os.scandir(real) as entries:
        is_empty = next(entries, None) is None
    # After the first access: it is what mounts an automounted directory.
    found = Path(real).stat()
    table = read_mount_table()
    mount = mount_of(Path(real), table)
    seen = RootSeen(
        path=real,
        device=found.st_dev,
        inode=found.st_ino,
        mount_point=mount.point if mount else "",
        mounts_inside=mount_points_below(Path(real), table),
    )
    return seen, is_empty


def _is_proper_parent(point: str, other: str) -> bool:
    return point != other and Path(other).is_relative_to(point or "/")
