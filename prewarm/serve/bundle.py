"""``GET /v1/bundles/{sha256}``: one packed file, whole or in part, from an open file.

The digest is checked for its form before it becomes a path; no other part of a request ever does.
Whether the content is what the digest says is the reader's to check, who has to anyway.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import stat
from collections.abc import AsyncIterator
from pathlib import Path

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from prewarm.errors import StoreCorrupt
from prewarm.serve.byte_range import ByteRange, RangeOutside, parse_range
from prewarm.serve.conditional import has_already
from prewarm.serve.refused import Refused
from prewarm.store.bundle import bundle_path

#: A hundred readers at once hold some of these each.
_PIECE_BYTES = 64 << 10

_SHA256 = re.compile(r"[0-9a-f]{64}")

#: Content that its own name promises never changes.
_FOREVER = "public, max-age=31536000, immutable"


async def answer_bundle(cache_dir: Path, request: Request) -> Response:
    """Answer with a bundle, the part of it that is asked for, or that the reader has it.

    Raises:
        Refused: the digest is none, no such bundle is here, or it has no such part.
        StoreCorrupt: it cannot be read.
    """
    sha256 = request.path_params["sha256"]
    if not _SHA256.fullmatch(sha256):
        raise Refused("a bundle is named by 64 hexadecimal digits in lower case")
    file = await to_thread.run_sync(_open, bundle_path(cache_dir, sha256))
    size_bytes = os.fstat(file.fileno()).st_size
    try:
        return _answer(request, sha256, file, size_bytes)
    except RangeOutside:
        file.close()
        raise Refused(
            f"bundle {sha256[:16]}… has {size_bytes:,} bytes and none of those asked for",
            code="bad_range",
            headers={"content-range": f"bytes */{size_bytes}"},
        ) from None


def _answer(request: Request, sha256: str, file: io.FileIO, size_bytes: int) -> Response:
    etag = f'"{sha256}"'
    headers = {"etag": etag, "cache-control": _FOREVER, "accept-ranges": "bytes"}
    if has_already(request.headers.get("if-none-match"), etag):
        file.close()
        return Response(status_code=304, headers=headers)
    part = None
    if request.headers.get("if-range", etag) == etag and request.method == "GET":
        part = parse_range(request.headers.get("range"), size_bytes)
    status = 200
    if part is None:
        part = ByteRange(0, size_bytes - 1)
    else:
        status = 206
        headers["content-range"] = f"bytes {part.first}-{part.last}/{size_bytes}"
    headers["content-length"] = str(part.size_bytes)
    headers["content-type"] = "application/zstd"
    if request.method == "HEAD":
        file.close()
        return Response(status_code=status, headers=headers)
    return _PartOfFile(file, part, status_code=status, headers=headers)


class _PartOfFile(StreamingResponse):
    """Some bytes of an open file, which is closed when they are sent or the reader is gone."""

    def __init__(
        self, file: io.FileIO, part: ByteRange, *, status_code: int, headers: dict[str, str]
    ) -> None:
        self._file = file
        super().__init__(_pieces(file.fileno(), part), status_code, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)


async def _pieces(descriptor: int, part: ByteRange) -> AsyncIterator[bytes]:
    offset, left = part.first, part.size_bytes
    while left:
        size_bytes = min(left, _PIECE_BYTES)
        piece = _read_now(descriptor, size_bytes, offset)
        if piece is None:
            piece = await to_thread.run_sync(os.pread, descriptor, size_bytes, offset)
        if not piece:
            raise StoreCorrupt(f"a bundle became shorter by {left:,} bytes while it was sent")
        yield piece
        offset, left = offset + len(piece), left - len(piece)
        # A reader that is as fast as this must not keep the others waiting.
        await asyncio.sleep(0)


def _read_now(descriptor: int, size_bytes: int, offset: int) -> bytes | None:
    """Read what lies in memory; None where a disk or network would have to be waited for."""
    piece = bytearray(size_bytes)
    try:
        count = os.preadv(descriptor, [piece], offset, os.RWF_NOWAIT)
    except OSError:
        # Not in memory, or the file system does not know how to tell.
        return None
    return bytes(memoryview(piece)[:count])


def _open(path: Path) -> io.FileIO:
    try:
        # Not to wait for the writer of a pipe that somebody put there.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise Refused(
            f"bundle {path.name[:16]}… is not here; read the manifest again", code="no_bundle"
        ) from None
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _unreadable(path, "it is no file")
    return io.FileIO(descriptor)


def _unreadable(path: Path, cause: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"bundle {path.name[:16]}… cannot be read ({cause}); the builder's next scan looks at it"
    )
