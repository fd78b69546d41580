"""Where the cgroup of this process lies: its directory, and the top of what is mounted of it.

Owns the reading of ``/proc/self/cgroup`` and of the mount table for it. Version 2 is one hierarchy
for all controllers, version 1 one for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prewarm.file_system import read_mount_table

_OWN = Path("/proc/self/cgroup")

#: The name under which ``own_cgroup`` finds the hierarchy of version 2.
VERSION_2 = ""


@dataclass(frozen=True, slots=True)
class OwnCgroup:
    """The directory of a cgroup, and the one where its hierarchy is mounted."""

    directory: Path
    top: Path

    def upwards(self) -> Iterator[Path]:
        """Yield the directory and those above it, up to the mount's own."""
        here = self.directory
        yield here
        while here != self.top and here != here.parent:
            here = here.parent
            yield here


def own_cgroup(
    controller: str, *, own: str | None = None, mount_table: str | None = None
) -> OwnCgroup | None:
    """Return where this process stands in the hierarchy of a version 1 controller or version 2.

    None where there is no such hierarchy, or it is not mounted where this process could see it.
    """
    place = _place(_read(_OWN) if own is None else own, controller)
    table = read_mount_table() if mount_table is None else mount_table
    for root, point, kind, options in _mounts(table):
        if kind != ("cgroup" if controller else "cgroup2") or place is None:
            continue
        if controller and controller not in options.split(","):
            continue
        # In a container without a namespace of its own, only a part of the hierarchy is mounted.
        inside = place[len(root.rstrip("/")) :] if _within(place, root) else place
        return OwnCgroup(Path(point + inside.rstrip("/")), Path(point))
    return None


def _place(own: str, controller: str) -> str | None:
    for line in own.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(",") and (controller or number == "0"):
            return path
    return None


def _mounts(table: str) -> Iterator[tuple[str, str, str, str]]:
    for line in table.splitlines():
        left, separator, right = line.partition(" - ")
        fields, rest = left.split(), right.split()
        if separator and len(fields) >= 5 and len(rest) >= 3:
            yield fields[3], fields[4], rest[0], rest[2]


def _within(place: str, root: str) -> bool:
    return root == "/" or place == root or place.startswith(root + "/")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
