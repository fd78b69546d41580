"""Packing: from a tree of compile caches to one bundle, hashed while it is written.

Owns what of a tree goes into a bundle and in which order. The format is ``bundle_format.py``'s.

- Equal trees give equal bytes, whatever the order of creation, times, owner or umask.
- Files stand by kind (suffix) within each folder: like beside like, and Triton's cubins near the
  graph entries that hold the same bytes. Measured on 130 MB: 25 MB, by name alone 31 MB.
- The window of 64 MB finds such pairs and lets packing and unpacking stay under 100 MB of memory.
- What changes while it is packed is refused: a cache that is still written proves nothing.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import zstandard

from prewarm.errors import StoreCorrupt
from prewarm.store.bundle_format import (
    END,
    LARGEST_FILE_BYTES,
    TOP_FOLDERS,
    BundleInfo,
    Header,
    Names,
    write_header,
)
from prewarm.store.whole_file import whole_file

#: Level 9 gave 1% less for 40% more time; long matches are found by the long-range matcher.
_LEVEL = 6
_WINDOW_LOG = 26

_CHUNK_BYTES = 1 << 20

_SKIPPED_FOLDERS = frozenset({"locks", "__pycache__"})
_SKIPPED_SUFFIXES = (".lock", ".tmp")
#: Triton compiles in ``tmp.pid_<pid>_<uuid>`` and leaves it behind when it is killed.
_SKIPPED_PREFIX = "tmp.pid_"


@dataclass(frozen=True, slots=True)
class _Member:
    path: str
    header: Header


def pack(tree: Path, target: Path, *, skip: Callable[[str], bool] | None = None) -> BundleInfo:
    """Pack ``tree/inductor`` and ``tree/triton`` as the bundle ``target``, which appears whole.

    Locks, temporary files and empty folders are left out, and each name for which ``skip`` is true.

    Raises:
        StoreCorrupt: nothing to pack, a name that no bundle may hold, or the tree changes.
        NoSpace: no space left for the target.
        NotWritable: the target cannot be written.
    """
    skipped: list[str] = []
    members = sorted(_members(tree, skip, skipped), key=_order)
    _check(tree, members)
    unpacked_bytes = sum(member.header.size_bytes for member in members)
    with whole_file(target) as file:
        hashed = _Hashed(file)
        _write(hashed, members)
    return BundleInfo(
        sha256=hashed.digest.hexdigest(),
        size_bytes=hashed.size_bytes,
        unpacked_bytes=unpacked_bytes,
        files=len(members),
        skipped=tuple(sorted(skipped)),
    )


class _Hashed:
    """Passes on what is written, and hashes and counts it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size_bytes = 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size_bytes += len(data)
        return self._file.write(data)


def _write(hashed: _Hashed, members: list[_Member]) -> None:
    headers = [write_header(member.header) for member in members]
    # With the length known, a reader can refuse a bomb before it unpacks a byte.
    total = len(END) + sum(
        len(header) + member.header.size_bytes + member.header.padding_bytes
        for header, member in zip(headers, members, strict=True)
    )
    parameters = zstandard.ZstdCompressionParameters(
        compression_level=_LEVEL, window_log=_WINDOW_LOG, enable_ldm=True
    )
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    # Not as a context manager: leaving it after an error would end the frame and hide the error.
    out = compressor.stream_writer(hashed, size=total, closefd=False)  # type: ignore[arg-type]
    for header, member in zip(headers, members, strict=True):
        out.write(header)
        for chunk in _content(member):
            out.write(chunk)
        out.write(bytes(member.header.padding_bytes))
    out.write(END)
    out.flush(zstandard.FLUSH_FRAME)


def _content(member: _Member) -> Iterator[bytes]:
    left = member.header.size_bytes
    try:
        # Without following: the tree is a child's, who could put a link where a file was.
        descriptor = os.open(member.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            while chunk := file.read(min(_CHUNK_BYTES, left + 1)):
                left -= len(chunk)
                if left < 0:
                    break
                yield chunk
    except OSError as error:
        raise _changed(member.path, error.strerror or str(error)) from error
    if left:
        raise _changed(member.path, "its length changed")


def _members(
    tree: Path, skip: Callable[[str], bool] | None, skipped: list[str]
) -> Iterator[_Member]:
    for top in TOP_FOLDERS:
        real = (tree / top).is_dir() and not (tree / top).is_symlink()
        folders = [top] if real else []
        while folders:
            folder = folders.pop()
            for found in _scan(tree / folder):
                name = f"{folder}/{found.name}"
                if found.is_dir(follow_symlinks=False):
                    if found.name not in _SKIPPED_FOLDERS and not _is_temporary(found.name):
                        folders.append(name)
                elif _is_temporary(found.name) or (skip is not None and skip(name)):
                    continue
                elif not found.is_file(follow_symlinks=False):
                    skipped.append(name)
                else:
                    yield _member(name, found)


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError as error:
        raise _changed(folder, error.strerror or str(error)) from error


def _member(name: str, found: os.DirEntry[str]) -> _Member:
    try:
        seen = found.stat(follow_symlinks=False)
    except OSError as error:
        raise _changed(found.path, error.strerror or str(error)) from error
    return _Member(found.path, Header(name, seen.st_size, bool(seen.st_mode & stat.S_IXUSR)))


def _is_temporary(name: str) -> bool:
    return name.endswith(_SKIPPED_SUFFIXES) or name.startswith(_SKIPPED_PREFIX)


def _order(member: _Member) -> tuple[str, str, str]:
    name = member.header.name
    return name.partition("/")[0], PurePosixPath(name).suffix, name


def _check(tree: Path, members: list[_Member]) -> None:
    if not members:
        raise StoreCorrupt(
            f"{tree}: holds no compile cache to pack (no file in {' or '.join(TOP_FOLDERS)})"
        )
    names = Names()
    for member in members:
        names.add(member.header.name)
        if member.header.size_bytes > LARGEST_FILE_BYTES:
            raise StoreCorrupt(f"{member.path}: is over {LARGEST_FILE_BYTES:,} bytes")


def _changed(path: object, cause: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"{path}: changed or became unreadable while it was packed ({cause}); build it again"
    )
