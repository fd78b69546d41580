"""Which kind of file system a path lies on: local, or one that cannot hold a database.

Owns the list of network file systems and the reading of the mount table. SQLite's WAL needs shared
memory between its processes, which a network file system does not give: it corrupts there.
"""

from __future__ import annotations

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


def file_system(path: Path, mount_table: str) -> tuple[str, str]:
    """Return the type and the source of the mount that ``path`` lies on.

    ``mount_table`` is the text of ``/proc/self/mountinfo``; where it says nothing, both are empty.
    """
    best = ("", "")
    best_length = -1
    for line in mount_table.splitlines():
        left, separator, right = line.partition(" - ")
        fields, rest = left.split(), right.split()
        if not separator or len(fields) < 5 or len(rest) < 2:
            continue
        point = _unescape(fields[4])
        # A later line is mounted over an earlier one, so equal lengths replace.
        if path.is_relative_to(point) and len(point) >= best_length:
            best, best_length = (rest[0], _unescape(rest[1])), len(point)
    return best


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
    try:
        table = _MOUNT_TABLE.read_text(errors="surrogateescape")
    except OSError:
        return None
    kind, source = file_system(path.resolve(), table)
    return kind if is_network(kind, source) else None


def _unescape(field: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, character)
    return field
