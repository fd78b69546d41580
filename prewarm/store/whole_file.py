"""Files that are never half-written: whole under their name, or not there.

Owns how a file gets its name and how a failing write is told. Holds no format and knows no layout.

- Data goes to an unnamed file (``O_TMPFILE``), is synced, linked complete under a hidden name and
  renamed over the target. ``kill -9`` at any line leaves the old file, the new one, or a complete
  hidden leftover.
- A file system without ``O_TMPFILE`` (NFS, some FUSE) gets a hidden file beside the target instead;
  a killed writer may leave that one incomplete, never the target. ``collect.py`` removes leftovers.
- Modes are set explicitly: another user's deployment reads what a builder with umask 077 wrote.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from prewarm.errors import NoSpace, NotWritable, PrewarmError

#: Hidden names of files on their way: ``.prewarm-<random>.part``. No reader looks at them.
PART_PREFIX = ".prewarm-"
PART_SUFFIX = ".part"

#: Large enough that copying costs few system calls, small enough for a small process.
_COPY_CHUNK_BYTES = 1 << 20

_PROC_DESCRIPTORS = Path("/proc/self/fd")

_DIRECTORY_MODE = 0o755

# What open(O_TMPFILE) answers where the file system or kernel cannot: EOPNOTSUPP (NFS), EISDIR
# (kernels that don't know the flag see a directory opened for writing), EINVAL and ENOSYS (FUSE).
_NO_TMPFILE = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS})

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def write_whole(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write ``data`` as the whole new content of ``path``.

    Raises:
        NoSpace: the disk or quota is full.
        NotWritable: the directory cannot be written.
    """
    with whole_file(path, mode=mode, needed_bytes=len(data)) as file:
        file.write(data)


def publish_file(source: Path, target: Path, mode: int = 0o644) -> None:
    """Move a finished file to ``target``, which appears whole; directories above it are made.

    Across file systems the content is copied; the source is gone afterwards either way.

    Raises:
        NoSpace: the disk or quota of the target is full.
        NotWritable: the target's directory cannot be written.
    """
    make_directory(target.parent)
    with write_errors(target):
        try:
            with source.open("rb") as file:
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            source.rename(target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        else:
            _sync_directory(target.parent)
            return
    size_bytes = source.stat().st_size
    with source.open("rb") as file, whole_file(target, mode=mode, needed_bytes=size_bytes) as copy:
        shutil.copyfileobj(file, copy, _COPY_CHUNK_BYTES)
    source.unlink()


@contextmanager
def whole_file(
    path: Path, *, mode: int = 0o644, needed_bytes: int | None = None
) -> Iterator[BinaryIO]:
    """Open a file for writing that appears as ``path`` when the block ends well, else not at all.

    Raises:
        NoSpace: the disk or quota is full.
        NotWritable: the directory cannot be written.
    """
    with write_errors(path, needed_bytes=needed_bytes):
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with _part(directory) as (file, part):
                yield file
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
                if not _is_linked(file):
                    _link(file, part, directory)
                os.rename(part, path.name, src_dir_fd=directory, dst_dir_fd=directory)
            os.fsync(directory)
        finally:
            os.close(directory)


@contextmanager
def write_errors(path: Path, *, needed_bytes: int | None = None) -> Iterator[None]:
    """Tell a failing system call on ``path`` as one of our errors, with what to do.

    Raises:
        NoSpace: the disk or quota is full.
        NotWritable: anything else that the system refused.
    """
    try:
        yield
    except OSError as error:
        raise write_error(error, path, needed_bytes=needed_bytes) from error


def write_error(error: OSError, path: Path, *, needed_bytes: int | None = None) -> PrewarmError:
    """Return the one-line error for a system call that failed while writing ``path``."""
    if error.errno in _FULL:
        needed = "more" if needed_bytes is None else f"{needed_bytes:,} bytes"
        free = _free_bytes(path)
        left = "" if free is None else f", {free:,} free"
        why = "quota used up" if error.errno == errno.EDQUOT else "no space left"
        return NoSpace(
            f"{path}: {why} ({needed} needed{left}); free some space there, "
            "run `prewarm gc`, or choose another directory"
        )
    cause = error.strerror or str(error)
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return NotWritable(
            f"{path}: cannot be written ({cause}); make {path.parent} a directory or choose another"
        )
    return NotWritable(
        f"{path}: cannot be written as user {os.geteuid()} ({cause}); "
        "give this user write access there or choose another directory"
    )


def make_directory(path: Path) -> None:
    """Make a directory and those above it, readable by all whatever the umask; keep what is there.

    Raises:
        NotWritable: it cannot be made.
    """
    with write_errors(path):
        if path.is_dir():
            return
        missing = [path, *(parent for parent in path.parents if not os.path.lexists(parent))]
        for directory in reversed(missing):
            try:
                directory.mkdir()
            except FileExistsError:
                if not directory.is_dir():
                    raise
            else:
                directory.chmod(_DIRECTORY_MODE)
                # Else a power cut may take it away with all that was synced in it since.
                with suppress(PermissionError):  # a parent that may be written and not read
                    _sync_directory(directory.parent)


def make_writable(path: Path) -> None:
    """Make a directory and try to write to it, so that a refusal is told before long work.

    Raises:
        NotWritable: it cannot be made or written (mode, read-only file system, immutable flag).
        NoSpace: not even an empty file has room.
    """
    make_directory(path)
    with write_errors(path):
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            name = f"{PART_PREFIX}{secrets.token_hex(8)}{PART_SUFFIX}"
            os.close(_open_part(directory, name))
            with suppress(FileNotFoundError):  # it never had a name where O_TMPFILE works
                os.unlink(name, dir_fd=directory)
        finally:
            os.close(directory)


def remove_parts(directory: Path) -> None:
    """Remove what dead writers left on its way in a directory that nobody else writes to now."""
    with suppress(OSError):
        for path in directory.iterdir():
            if is_part(path.name):
                with suppress(OSError):
                    path.unlink()


def is_part(name: str) -> bool:
    """Whether a file name is that of a file on its way, which a dead writer may have left."""
    return name.startswith(PART_PREFIX) and name.endswith(PART_SUFFIX)


@contextmanager
def _part(directory: int) -> Iterator[tuple[BinaryIO, str]]:
    """Yield an open file without a visible name, and the hidden name it has or shall have."""
    name = f"{PART_PREFIX}{secrets.token_hex(8)}{PART_SUFFIX}"
    descriptor = _open_part(directory, name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file, name
    except BaseException:
        # Gone already after the rename, never there if it was not linked yet.
        with suppress(OSError):
            os.unlink(name, dir_fd=directory)
        raise


def _open_part(directory: int, name: str) -> int:
    # Linking an unnamed file goes through /proc, which a bare chroot may lack.
    if hasattr(os, "O_TMPFILE") and _PROC_DESCRIPTORS.is_dir():
        try:
            return os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=directory)
        except OSError as error:
            if error.errno not in _NO_TMPFILE:
                raise
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    return os.open(name, flags, 0o600, dir_fd=directory)


def _is_linked(file: BinaryIO) -> bool:
    return os.fstat(file.fileno()).st_nlink > 0


def _link(file: BinaryIO, name: str, directory: int) -> None:
    # dst_dir_fd makes Python use linkat with AT_SYMLINK_FOLLOW, which the /proc link needs.
    os.link(
        _PROC_DESCRIPTORS / str(file.fileno()), name, dst_dir_fd=directory, follow_symlinks=True
    )


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _free_bytes(path: Path) -> int | None:
    for place in path.parents:
        with suppress(OSError):
            found = os.statvfs(place)
            return found.f_bavail * found.f_frsize
    return None
