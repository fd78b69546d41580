"""The digest of everything in a checkpoint, without reading 100 GB at each scan.

Owns the digest: names, sizes and sha256 of all files, wherever they lie and whenever they were
written. Does not keep what it read: a ``ContentCache`` (the store's database) does.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from prewarm.errors import RegistryError
from prewarm.registry.checkpoint import Checkpoint, CheckpointFile

_FORMAT = b"prewarm content 1\n"
_CHUNK_BYTES = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")

#: A quick look reads no more than this of files whose digest nobody knows.
QUICK_BYTES = 8 << 20


def _nothing() -> None:
    """Be called for a piece that is read."""


class ContentCache(Protocol):
    """Digests of files that were read before, held while size, times and inode are the same."""

    def file_digest(
        self, path: Path | str, *, size_bytes: int, mtime_ns: int, ctime_ns: int, inode: int
    ) -> str | None:
        """Return the digest of a file that has not changed since, if it is known."""

    def put_file_digest(
        self,
        path: Path | str,
        *,
        size_bytes: int,
        mtime_ns: int,
        ctime_ns: int,
        inode: int,
        digest: str,
    ) -> None:
        """Keep the digest of a file as it is now."""


def content_digest(
    checkpoint: Checkpoint,
    cache: ContentCache | None = None,
    *,
    reading: Callable[[], None] = _nothing,
) -> str:
    """Return the sha256 over names, sizes and contents of all files of a checkpoint.

    ``reading`` is called for each piece that is really read, and may raise to end it.

    Raises:
        RegistryError: a file vanished or changed while it was read (code "changed"), or cannot be
            read.

    """
    return _digest_of(
        (file, _sha256_of(file, cache, checkpoint.name, reading)) for file in checkpoint.files
    )


def quick_content_digest(
    checkpoint: Checkpoint, known: Callable[[CheckpointFile], str | None]
) -> str | None:
    """Return the same from known digests and small files; None where more would have to be read.

    Raises:
        RegistryError: a file cannot be read, or changes just now.

    """
    found, unread_bytes = [], 0
    for file in checkpoint.files:
        sha256 = file.path.name if _named_by_sha256(file.path) else known(file)
        if sha256 is None:
            unread_bytes += file.size_bytes
            if unread_bytes > QUICK_BYTES:
                return None
            sha256 = _read(file, f"{checkpoint.name}: {file.name}")
        found.append((file, sha256))
    return _digest_of(found)


def _digest_of(files: Iterable[tuple[CheckpointFile, str]]) -> str:
    digest = hashlib.sha256(_FORMAT)
    for file, sha256 in files:
        line = f"{sha256} {file.size_bytes} {file.name}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _sha256_of(
    file: CheckpointFile,
    cache: ContentCache | None,
    checkpoint: str,
    reading: Callable[[], None],
) -> str:
    if _named_by_sha256(file.path):
        return file.path.name
    stamp = {
        "size_bytes": file.size_bytes,
        "mtime_ns": file.mtime_ns,
        "ctime_ns": file.ctime_ns,
        "inode": file.inode,
    }
    known = cache.file_digest(file.path, **stamp) if cache else None
    if known:
        return known
    sha256 = _read(file, f"{checkpoint}: {file.name}", reading)
    if cache:
        cache.put_file_digest(file.path, digest=sha256, **stamp)
    return sha256


def _named_by_sha256(path: Path) -> bool:
    """Say whether a Hugging Face cache named the file by its sha256 (as it does large ones)."""
    return (
        path.parent.name == "blobs"
        and path.parent.parent.name.startswith("models--")
        and _SHA256.fullmatch(path.name) is not None
    )


def _read(file: CheckpointFile, where: str, reading: Callable[[], None] = _nothing) -> str:
    digest = hashlib.sha256()
    try:
        with file.path.open("rb", buffering=0) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
                reading()
            after = os.fstat(stream.fileno())
    except FileNotFoundError as error:
        raise RegistryError(
            f"{where}: vanished while it was read; the next scan looks again", code="changed"
        ) from error
    except OSError as error:
        raise RegistryError(f"{where}: cannot be read ({error.strerror}); allow reading") from error
    if (after.st_size, after.st_mtime_ns, after.st_ino) != (
        file.size_bytes, file.mtime_ns, file.inode,
    ):  # fmt: skip
        raise RegistryError(
            f"{where}: changed while it was read; the next scan looks again", code="changed"
        )
    return digest.hexdigest()
