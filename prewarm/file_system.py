"""Which mount a path lies on, and whether that is local or reached over a network.

Owns the list of network file systems and the reading of the mount table. SQLite's WAL needs shared
memory between its processes, which a network file system does not give: it corrupts there. Nor does
one tell what another machine writes to it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MOUNT_TABLE = Path("/proc/self/mountinfo")

_NETWORK = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs", "lustre",
        "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb2", "smb3", "smbfs",
    }
)  # fmt: skip

# FUSE names its programs after a dot. Those that only rearrange local disks are fine.
_LOCAL_FUSE = frozenset({"fuse-overlayfs", "mergerfs", "bindfs", "unionfs", "lxcfs", "ntfs-3g"})


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the mount table: where it is mounted, its type, and from which source."""

    point: str
    kind: str
    source: str


def read_mount_table() -> str:
    """Return the text of the mount table; empty where there is none to read."""
    try:
        return _MOUNT_TABLE.read_text(errors="surrogateescape")
    except OSError:
        return ""


# Kept for whoever asks every second: the table changes rarely.
@functools.lru_cache(maxsize=16)
def mount_of(path: Path, mount_table: str) -> Mount | None:
    """Return the mount that ``path`` lies on, None where the table says nothing."""
    best: Mount | None = None
    for mount in _mounts(mount_table):
        # A later line is mounted over an earlier one, so equal lengths replace.
        if path.is_relative_to(mount.point) and (
            best is None or len(mount.point) >= len(best.point)
        ):
            best = mount
    return best


@functools.lru_cache(maxsize=16)
def mount_points_below(path: Path, mount_table: str) -> frozenset[str]:
    """Return the places inside ``path`` at which something else is mounted."""
    return frozenset(
        mount.point
        for mount in _mounts(mount_table)
        if mount.point != str(path) and Path(mount.point).is_relative_to(path)
    )


def file_system(path: Path, mount_table: str) -> tuple[str, str]:
    """Return the type and the source of the mount that ``path`` lies on.

    ``mount_table`` is the text of ``/proc/self/mountinfo``; where it says nothing, both are empty.
    """
    mount = mount_of(path, mount_table)
    return (mount.kind, mount.source) if mount else ("", "")


def is_network(kind: str, source: str) -> bool:
    """Whether a file system of this type, mounted from this source, is reached over a network."""
    if kind in _NETWORK:
        return True
    if kind == "fuse" or kind.startswith("fuse."):
        program = kind.removeprefix("fuse").removeprefix(".")
        return program not in _LOCAL_FUSE and (bool(program) or ":" in source)
    return False


def network_file_system(path: Path) -> str | None:
    """Return the type of the network file system that ``path`` lies on, or None for a local one."""
    kind, source = file_system(path.resolve(), read_mount_table())
    return kind if is_network(kind, source) else None


def _mounts(mount_table: str) -> Iterator[Mount]:
    for line in mount_table.splitlines():
        left, separator, right = line.partition(" - ")
        fields, rest = left.split(), right.split()
        if separator and len(fields) >= 5 and len(rest) >= 2:
            yield Mount(_unescape(fields[4]), rest[0], _unescape(rest[1]))


def _unescape(field: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, character)
    return field
