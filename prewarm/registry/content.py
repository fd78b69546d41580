"""The digest of everything in a checkpoint, without reading 100 GB at each scan.

Owns the digest: names, sizes and sha256 of all files, wherever they lie and whenever they were
written. Does not keep what it read: a ``ContentCache`` (the store's database) does.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Protocol

from prewarm.errors import RegistryError
from prewarm.registry.checkpoint import Checkpoint, CheckpointFile

_FORMAT = b"prewarm content 1\n"
_CHUNK_BYTES = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")


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


def content_digest(checkpoint: Checkpoint, cache: ContentCache | None = None) -> str:
    """Return the sha256 over names, sizes and contents of all files of a checkpoint.

    Raises:
        RegistryError: a file vanished or changed while it was read (code "changed"), or cannot be
            read.

    """
    digest = hashlib.sha256(_FORMAT)
    for file in checkpoint.files:
        sha256 = _sha256_of(file, cache, checkpoint.name)
        line = f"{sha256} {file.size_bytes} {file.name}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _sha256_of(file: CheckpointFile, cache: ContentCache | None, checkpoint: str) -> str:
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
    sha256 = _read(file, f"{checkpoint}: {file.name}")
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


def _read(file: CheckpointFile, where: str) -> str:
    digest = hashlib.sha256()
    try:
        with file.path.open("rb", buffering=0) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
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
