"""The gate before every route: how often, and who. And the count of what was answered.

Owns nothing of HTTP's meaning beyond that. Health is told to everybody, since it says nothing else.
"""

from __future__ import annotations

import math

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prewarm.errors import PrewarmError
from prewarm.serve.access import check_access
from prewarm.serve.house import House
from prewarm.serve.peer import Peer
from prewarm.serve.rate import Buckets
from prewarm.serve.refused import Refused, answer_of

_OPEN = frozenset({"/healthz", "/readyz"})
_READS = frozenset({"GET", "HEAD"})

#: Routes as they are counted; whatever else is asked for is one more word.
_ROUTES = ("/v1/manifest", "/v1/bundles/", "/v1/requests", "/v1/reports", "/metrics", *_OPEN)


class Gate:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, house: House) -> None:
        self._app = app
        self._house = house
        self._reads = Buckets(house.limits.reads)
        self._writes = Buckets(house.limits.writes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        route = next((one for one in _ROUTES if scope["path"].startswith(one)), "other")

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._house.metrics.request_answered(route.rstrip("/"), message["status"])
            await send(message)

        try:
            self._check(scope)
        except PrewarmError as error:
            await answer_of(error)(scope, receive, counted)
            return
        await self._app(scope, receive, counted)

    def _check(self, scope: Scope) -> None:
        peer: Peer = scope["state"]["peer"]
        writes = scope["method"] not in _READS
        buckets = self._writes if writes else self._reads
        wait_s = buckets.take(peer.name, now_s=self._house.monotonic_s())
        if wait_s:
            raise Refused(
                f"{peer.name} asks too often",
                code="too_many",
                headers={"retry-after": str(math.ceil(wait_s))},
            )
        if scope["path"] not in _OPEN:
            check_access(peer, Headers(scope=scope), writes=writes, token=self._house.token)
