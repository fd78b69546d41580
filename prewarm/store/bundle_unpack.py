"""Unpacking: from a bundle to files in a private directory, nothing trusted.

Owns the order of the checks: length and digest before a byte is unpacked, then each header before
its file. Memory stays bounded by the window and one buffer, whatever the bundle says.

- Nothing is written outside ``into``; names are opened relative to it and must be new.
- Modes are set explicitly, so a deployment's umask does not matter.
- Unsynced: a private directory is rebuilt, not recovered.
- A failure removes what was written.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from io import BufferedReader
from pathlib import Path

import zstandard

from prewarm.errors import NoSpace, StoreCorrupt
from prewarm.store.bundle_format import (
    BLOCK_BYTES,
    END,
    Header,
    Limits,
    ListedFile,
    Names,
    pax_size,
    read_header,
    read_pax_name,
)
from prewarm.store.whole_file import make_directory, write_errors

_BUFFER_BYTES = 1 << 20

_ZERO_BLOCK = bytes(BLOCK_BYTES)

#: The longest frame header of zstd.
_FRAME_HEADER_BYTES = 18

#: Upper bound of what the tar adds to a file: two headers, a pax record with a name, two paddings.
_OVERHEAD_BYTES = 8 * BLOCK_BYTES


def unpack(
    bundle: Path,
    into: Path,
    *,
    sha256: str,
    size_bytes: int,
    limits: Limits | None = None,
    earlier: Iterable[ListedFile] = (),
) -> tuple[ListedFile, ...]:
    """Check a bundle and unpack it into a directory, which is made if it is not there.

    ``earlier`` is what other bundles left there already: a name of theirs is kept as it is and not
    listed again.

    Raises:
        StoreCorrupt: it is not the bundle it should be, or holds what no bundle may.
        NoSpace: no space left.
        NotWritable: ``into`` cannot be written.
    """
    limits = limits or Limits()
    try:
        file = bundle.open("rb")
    except OSError as error:
        raise StoreCorrupt(f"{bundle}: cannot be read ({error.strerror})") from error
    with file:
        _check_digest(file, bundle, sha256, size_bytes, limits)
        total_bytes = _check_frame(file, bundle, limits)
        make_directory(into)
        _check_space(into, total_bytes)
        try:
            return _Unpacking(file, into, total_bytes, limits, earlier).run()
        except (StoreCorrupt, zstandard.ZstdError) as error:
            raise StoreCorrupt(f"{bundle}: {error}; nothing of it was kept") from error


def _check_digest(
    file: BufferedReader, bundle: Path, sha256: str, size_bytes: int, limits: Limits
) -> None:
    found_bytes = os.fstat(file.fileno()).st_size
    if found_bytes != size_bytes:
        raise StoreCorrupt(f"{bundle}: has {found_bytes:,} bytes, not {size_bytes:,} as published")
    if size_bytes > limits.packed_bytes:
        raise StoreCorrupt(
            f"{bundle}: has {size_bytes:,} bytes, over the limit of {limits.packed_bytes:,}"
        )
    try:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
    except OSError as error:
        raise StoreCorrupt(f"{bundle}: cannot be read ({error.strerror})") from error
    if digest != sha256:
        raise StoreCorrupt(
            f"{bundle}: is damaged (sha256 {digest[:16]}…, published {sha256[:16]}…)"
        )


def _check_frame(file: BufferedReader, bundle: Path, limits: Limits) -> int:
    start = file.read(_FRAME_HEADER_BYTES)
    file.seek(0)
    try:
        frame = zstandard.get_frame_parameters(start)
    except zstandard.ZstdError as error:
        raise StoreCorrupt(f"{bundle}: is no bundle ({error})") from error
    if frame.content_size in (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR):
        raise StoreCorrupt(f"{bundle}: is no bundle (its unpacked length is not stated)")
    if frame.content_size > limits.unpacked_bytes + limits.files * _OVERHEAD_BYTES + len(END):
        raise StoreCorrupt(
            f"{bundle}: unpacks to {frame.content_size:,} bytes, "
            f"over the limit of {limits.unpacked_bytes:,}"
        )
    if frame.window_size > limits.window_bytes:
        raise StoreCorrupt(
            f"{bundle}: needs {frame.window_size:,} bytes of memory to unpack, "
            f"over the limit of {limits.window_bytes:,}"
        )
    return frame.content_size


def _check_space(into: Path, needed_bytes: int) -> None:
    with write_errors(into):
        disk = os.statvfs(into)
    free_bytes = disk.f_bavail * disk.f_frsize
    # A file system that reports no size at all (some FUSE) cannot be judged beforehand.
    if disk.f_blocks and free_bytes < needed_bytes:
        raise NoSpace(
            f"{into}: no space left ({needed_bytes:,} bytes needed, {free_bytes:,} free); "
            "free some space there or choose another directory"
        )


class _Unpacking:
    """One bundle on its way into a directory."""

    def __init__(
        self,
        file: BufferedReader,
        into: Path,
        total_bytes: int,
        limits: Limits,
        earlier: Iterable[ListedFile],
    ) -> None:
        self._into = into
        self._limits = limits
        self._tar = _Tar(file, total_bytes, limits.window_bytes)
        self._kept = {listed.name for listed in earlier}
        self._names = Names()
        self._earlier_names = Names(self._kept)
        self._written: list[str] = []
        self._folders: dict[str, None] = {}
        self._unpacked_bytes = 0

    def run(self) -> tuple[ListedFile, ...]:
        with write_errors(self._into):
            root = os.open(self._into, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return tuple(self._files(root))
        except BaseException:
            self._remove(root)
            raise
        finally:
            os.close(root)

    def _files(self, root: int) -> list[ListedFile]:
        listing: list[ListedFile] = []
        count = 0
        while header := self._tar.header():
            count += 1
            self._check(header, count)
            if header.name in self._kept:
                self._tar.skip(header.size_bytes)
            else:
                with write_errors(self._into / header.name, needed_bytes=header.size_bytes):
                    listing.append(self._write(root, header))
            self._tar.skip(header.padding_bytes)
        self._tar.end()
        return listing

    def _check(self, header: Header, count: int) -> None:
        self._names.add(header.name)
        if header.name not in self._kept:
            self._earlier_names.add(header.name)
        self._unpacked_bytes += header.size_bytes
        if count > self._limits.files:
            raise StoreCorrupt(f"holds over {self._limits.files:,} files")
        if self._unpacked_bytes > self._limits.unpacked_bytes:
            raise StoreCorrupt(f"unpacks to over {self._limits.unpacked_bytes:,} bytes")

    def _write(self, root: int, header: Header) -> ListedFile:
        self._make_folder(root, header.name.rpartition("/")[0])
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(header.name, flags, header.mode, dir_fd=root)
        self._written.append(header.name)
        digest = hashlib.sha256()
        try:
            os.fchmod(descriptor, header.mode)
            left = header.size_bytes
            while left:
                chunk = self._tar.some(left)
                digest.update(chunk)
                left -= len(chunk)
                while chunk:
                    chunk = chunk[os.write(descriptor, chunk) :]
        finally:
            os.close(descriptor)
        return ListedFile(header.name, header.size_bytes, digest.hexdigest())

    def _make_folder(self, root: int, folder: str) -> None:
        if folder in self._folders:
            return
        parent = folder.rpartition("/")[0]
        if parent:
            self._make_folder(root, parent)
        try:
            os.mkdir(folder, 0o755, dir_fd=root)
        except FileExistsError:
            # Not ours to follow if it is a link: only what an earlier bundle made may be there.
            os.close(os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root))
        else:
            os.chmod(folder, 0o755, dir_fd=root)
            self._folders[folder] = None
            return
        self._folders.setdefault(folder, None)

    def _remove(self, root: int) -> None:
        for name in reversed(self._written):
            with suppress(OSError):
                os.unlink(name, dir_fd=root)
        # Folders that others put something into stay, since they are not empty.
        for folder in reversed(self._folders):
            with suppress(OSError):
                os.rmdir(folder, dir_fd=root)


class _Tar:
    """The tar inside the frame, read once from front to back through one buffer."""

    def __init__(self, file: BufferedReader, total_bytes: int, window_bytes: int) -> None:
        decompressor = zstandard.ZstdDecompressor(max_window_size=window_bytes)
        # Across frames, so that anything behind the one frame is met instead of passed over.
        self._reader = decompressor.stream_reader(file, read_across_frames=True, closefd=False)
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._start = self._stop = 0
        self._left_bytes = total_bytes

    def header(self) -> Header | None:
        """Return the header of the next file, None at the end mark."""
        block = self._exactly(BLOCK_BYTES)
        if block == _ZERO_BLOCK:
            return None
        size_bytes = pax_size(block)
        if size_bytes is None:
            return read_header(block)
        name = read_pax_name(self._exactly(size_bytes))
        self.skip(-size_bytes % BLOCK_BYTES)
        return read_header(self._exactly(BLOCK_BYTES), name)

    def end(self) -> None:
        """Check that the end mark is whole and nothing follows."""
        if self._exactly(BLOCK_BYTES) != _ZERO_BLOCK:
            raise StoreCorrupt("its end mark is damaged")
        if self._left_bytes or self._start < self._stop or self._reader.read(1):
            raise StoreCorrupt("more follows after its end")

    def some(self, most: int) -> memoryview:
        """Return at least one and at most ``most`` bytes, valid until the next call."""
        if self._start == self._stop:
            self._start, self._stop = 0, self._reader.readinto(self._buffer)
            self._left_bytes -= self._stop
            if not self._stop or self._left_bytes < 0:
                raise StoreCorrupt("is cut off or longer than it says")
        stop = min(self._stop, self._start + most)
        chunk = self._buffer[self._start : stop]
        self._start = stop
        return chunk

    def skip(self, size_bytes: int) -> None:
        while size_bytes:
            size_bytes -= len(self.some(size_bytes))

    def _exactly(self, size_bytes: int) -> bytes:
        found = bytes(self.some(size_bytes))
        while len(found) < size_bytes:
            found += self.some(size_bytes - len(found))
        return found
