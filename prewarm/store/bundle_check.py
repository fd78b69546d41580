"""Checking a bundle where it lies, against the digest that is its name.

Owns what is wrong with a bundle in ``cache_dir``, in one sentence. What follows is the builder's.

- A file is read once after each change: its digest is kept with size, times and inode, so an
  untouched bundle costs a look at its inode.
- Silent damage by the disk changes none of these; only whoever reads the file anew finds it.
- A file system that is not to be reached is no damage: it is an error of the run.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prewarm.errors import NotWritable
from prewarm.store.files import Files

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: The file itself refuses: a closed mode, a bad block. Anything else is its file system's fault.
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EIO})


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a bundle is of no use; ``damaged`` if its content is wrong for whoever reads it."""

    reason: str
    damaged: bool


def bundle_fault(
    bundle: Path,
    *,
    sha256: str,
    digests: Files,
    size_bytes: int | None = None,
    reading: Callable[[], None],
) -> Fault | None:
    """Return what is wrong with a bundle, None if it holds what its name promises.

    ``reading`` is called for each piece that is really read, and may raise to end it.

    Raises:
        NotWritable: the file system that it lies on cannot be reached.
    """
    try:
        found = bundle.stat()
        if not stat.S_ISREG(found.st_mode):
            return Fault("its bundle is no file, something else stands in its place", damaged=True)
        if size_bytes is not None and found.st_size != size_bytes:
            told = f"its bundle has {found.st_size:,} bytes, not {size_bytes:,} as published"
            return Fault(told, damaged=True)
        digest = _digest(bundle, found, digests, reading)
    except (FileNotFoundError, NotADirectoryError):
        return Fault("its bundle is missing", damaged=True)
    except OSError as error:
        cause = error.strerror or str(error)
        if error.errno in _REFUSED:
            return Fault(f"its bundle cannot be read ({cause})", damaged=False)
        raise NotWritable(
            f"{bundle}: cannot be read ({cause}); look at the file system of the cache_dir"
        ) from error
    if digest != sha256:
        told = f"its bundle is damaged (sha256 {digest[:16]}…, published {sha256[:16]}…)"
        return Fault(told, damaged=True)
    return None


class _Watched(io.FileIO):
    """A file that tells each time it is read from."""

    def __init__(self, path: Path, reading: Callable[[], None]) -> None:
        super().__init__(path)
        self._reading = reading

    def readinto(self, buffer: Buffer, /) -> int:
        self._reading()
        return super().readinto(buffer)


def _digest(
    bundle: Path, found: os.stat_result, digests: Files, reading: Callable[[], None]
) -> str:
    known = digests.file_digest(bundle, **_stamp(found))
    if known is not None:
        return known
    with _Watched(bundle, reading) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        after = os.fstat(file.fileno())
    if _stamp(after) == _stamp(found):  # else it changed while it was read, and is read again
        digests.put_file_digest(bundle, digest=digest, **_stamp(found))
    return digest


def _stamp(found: os.stat_result) -> dict[str, Any]:
    return {
        "size_bytes": found.st_size,
        "mtime_ns": found.st_mtime_ns,
        "ctime_ns": found.st_ctime_ns,
        "inode": found.st_ino,
    }
