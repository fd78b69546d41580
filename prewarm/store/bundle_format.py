"""What a bundle is: the words of its files, its limits, and the tar headers it consists of.

A bundle is one zstd frame around a tar of regular files, so ``tar --zstd -xf`` opens it too; but it
is a strict subset, and both sides refuse all else. Pure: reads and writes no file.

- Names start with ``inductor/`` or ``triton/``: the two cache directories.
- No links, devices, owners or times: equal trees give equal bytes.
- Names that the old tar header cannot hold stand in a pax record with a path and nothing else.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from prewarm.errors import StoreCorrupt
from prewarm.plain_text import is_plain

TOP_FOLDERS = ("inductor", "triton")

BLOCK_BYTES = 512
END = bytes(2 * BLOCK_BYTES)

#: What the size field of a tar header can say.
LARGEST_FILE_BYTES = 8**11 - 1

#: Room for every name that a Linux file system takes in practice, and a bound on pax records.
_LONGEST_NAME_BYTES = 1024
_LONGEST_PART_BYTES = 255
_LONGEST_PAX_BYTES = _LONGEST_NAME_BYTES + 16

_NO_PARTS = frozenset({"", ".", ".."})

_USTAR = b"ustar\x0000"
_PAX, _REGULAR = b"x", b"0"
_OTHER_KINDS = {
    b"1": "a hard link",
    b"2": "a link",
    b"3": "a device",
    b"4": "a device",
    b"5": "a folder",
    b"6": "a pipe",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a reader takes from a bundle that it has not made itself."""

    files: int = 200_000
    unpacked_bytes: int = 64 << 30
    packed_bytes: int = 16 << 30
    window_bytes: int = 1 << 27


@dataclass(frozen=True, slots=True)
class BundleInfo:
    """A packed bundle. ``skipped`` names what was no regular file (links, sockets, devices)."""

    sha256: str
    size_bytes: int
    unpacked_bytes: int
    files: int
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a bundle, named relative to where it was unpacked."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Header:
    """What a tar header says of one regular file."""

    name: str
    size_bytes: int
    executable: bool

    @property
    def mode(self) -> int:
        """The permissions that the file gets, whatever the umask."""
        return 0o755 if self.executable else 0o644

    @property
    def padding_bytes(self) -> int:
        """How many zeros follow the content."""
        return -self.size_bytes % BLOCK_BYTES


class Names:
    """The names met so far in one bundle; each new one is checked against rules and others."""

    def __init__(self, earlier: Iterable[str] = ()) -> None:
        self._files: set[str] = set()
        self._folders: dict[str, str] = {}
        for name in earlier:
            self.add(name)

    def add(self, name: str) -> None:
        """Take a name.

        Raises:
            StoreCorrupt: it is no name for a bundle, or clashes with one before it.
        """
        problem = _name_problem(name) or self._clash(name)
        if problem:
            raise StoreCorrupt(f"{name[:200]!r} in a bundle: {problem}")

    def _clash(self, name: str) -> str | None:
        folded = name.casefold()
        if folded in self._files or folded in self._folders:
            return "is there twice, or differs only in upper and lower case from another"
        end = name.rfind("/")
        while end > 0:
            folder = name[:end]
            known = self._folders.setdefault(folder.casefold(), folder)
            if known != folder:
                return f"its folder differs only in upper and lower case from {known!r}"
            if folder.casefold() in self._files:
                return f"{folder!r} is a file and a folder"
            end = name.rfind("/", 0, end)
        self._files.add(folded)
        return None


def bundle_path(cache_dir: Path, sha256: str) -> Path:
    """Return where the bundle with this digest lies in a cache_dir."""
    return cache_dir / "bundles" / "sha256" / sha256[:2] / f"{sha256}.tar.zst"


def write_header(header: Header) -> bytes:
    """Return the blocks that stand before a file's content."""
    info = tarfile.TarInfo(header.name)
    info.size = header.size_bytes
    info.mode = header.mode
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def read_header(block: bytes, pax_name: str | None = None) -> Header:
    """Read the block before a file's content; ``pax_name`` is the name that a pax record gave.

    Raises:
        StoreCorrupt: the block is damaged, or of something else than a regular file.
    """
    kind, name, size_bytes = _fields(block)
    if kind != _REGULAR:
        what = _OTHER_KINDS.get(kind, "of a kind that no bundle holds")
        raise StoreCorrupt(
            f"{name[:200]!r} in a bundle: is {what}; only regular files may be there"
        )
    return Header(pax_name or name, size_bytes, executable=bool(_octal(block[100:108]) & 0o100))


def pax_size(block: bytes) -> int | None:
    """Return the length of the pax record that this block announces, None for another block.

    Raises:
        StoreCorrupt: the block is damaged, or the record is larger than a name needs.
    """
    if block[156:157] != _PAX:
        return None
    size_bytes = _fields(block)[2]
    if size_bytes > _LONGEST_PAX_BYTES:
        raise StoreCorrupt(f"a bundle holds a pax record of {size_bytes:,} bytes")
    return size_bytes


def read_pax_name(record: bytes) -> str:
    """Read the name from a pax record.

    Raises:
        StoreCorrupt: the record is damaged or says something else too.
    """
    length, separator, rest = record.partition(b" ")
    if not separator or length != str(len(record)).encode() or not record.endswith(b"\n"):
        raise StoreCorrupt("a bundle holds a damaged pax record")
    if not rest.startswith(b"path="):
        raise StoreCorrupt("a bundle holds a pax record that is no path")
    try:
        return rest[len(b"path=") : -1].decode()
    except UnicodeDecodeError:
        raise StoreCorrupt("a bundle holds a name that is no UTF-8") from None


def _fields(block: bytes) -> tuple[bytes, str, int]:
    checksum = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    if block[257:265] != _USTAR or _octal(block[148:156]) != checksum:
        raise StoreCorrupt("a bundle holds a damaged or foreign tar header")
    try:
        name = block[:100].rstrip(b"\0").decode("ascii")
        prefix = block[345:500].rstrip(b"\0").decode("ascii")
    except UnicodeDecodeError:
        raise StoreCorrupt("a bundle holds a name that is not as prewarm writes it") from None
    return block[156:157], f"{prefix}/{name}" if prefix else name, _octal(block[124:136])


def _octal(field: bytes) -> int:
    digits = field.rstrip(b"\0 ")
    # int() would also take signs, underscores and spaces.
    if not digits.isdigit():
        raise StoreCorrupt("a bundle holds a damaged tar header")
    try:
        return int(digits, 8)
    except ValueError:
        raise StoreCorrupt("a bundle holds a damaged tar header") from None


def _name_problem(name: str) -> str | None:
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return "is no UTF-8"
    parts = name.split("/")
    if not is_plain(name):
        return "holds a control character"
    if name.startswith("/"):
        return "is absolute"
    if not _NO_PARTS.isdisjoint(parts):
        return "holds an empty part, `.` or `..`"
    if parts[0] not in TOP_FOLDERS or len(parts) < 2:
        return f"lies in neither of {', '.join(TOP_FOLDERS)}"
    longest_part = max(len(part) for part in encoded.split(b"/"))
    if len(encoded) > _LONGEST_NAME_BYTES or longest_part > _LONGEST_PART_BYTES:
        return f"is longer than {_LONGEST_NAME_BYTES} bytes, or a part than {_LONGEST_PART_BYTES}"
    return None
