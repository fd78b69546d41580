"""``GET /v1/manifest``: all manifests that this builder trusts, in one answer."""

from __future__ import annotations

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from prewarm.serve.conditional import best_encoding, has_already
from prewarm.serve.shelf import Shelves

#: A slow reader holds one piece in memory, not the whole.
_PIECE_BYTES = 256 << 10


class PiecesResponse(Response):
    """A body that lies in memory once for all readers, sent to each as fast as it reads."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        body = b"" if scope["method"] == "HEAD" else bytes(self.body)
        for first in range(0, len(body), _PIECE_BYTES):
            piece = body[first : first + _PIECE_BYTES]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def answer_manifest(shelves: Shelves, request: Request) -> Response:
    """Answer with the manifests, or that the reader has them already.

    Raises:
        ManifestUnavailable: the cache_dir cannot be read, or is not trusted.
    """
    shelf = await shelves.present()
    encoding = best_encoding(request.headers.get("accept-encoding"))
    headers = {"etag": shelf.etag(encoding), "cache-control": "no-cache", "vary": "accept-encoding"}
    if has_already(request.headers.get("if-none-match"), headers["etag"]):
        return Response(status_code=304, headers=headers)
    if encoding is None or encoding in shelf.encoded:
        body = shelf.encode(encoding)
    else:
        body = await to_thread.run_sync(shelf.encode, encoding)
    if encoding is not None:
        headers["content-encoding"] = encoding
    return PiecesResponse(body, headers=headers, media_type="application/json")
