"""Deployments that wait for a model: one look for all of them, four times a second.

Owns how many may wait, and that nobody waits longer than was asked for, after the reader has gone,
or while the builder stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from prewarm.serve.refused import busy
from prewarm.serve.standing import Standing, Wish

#: A build takes a minute, so this is soon, and one small query.
_LOOK_S = 0.25

_RETRY_AFTER_S = 10

#: Tells where each wish stands now.
Look = Callable[[Collection[Wish]], Awaitable[Mapping[Wish, Standing]]]


class Waiting:
    """The deployments that wait at this moment."""

    def __init__(self, look: Look, *, most: int) -> None:
        self._look = look
        self._most = most
        self._waiters: dict[asyncio.Future[Standing], Wish] = {}
        self._looking: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiters)

    async def until_rest(
        self,
        wish: Wish,
        present: Standing,
        *,
        limit_s: float,
        gone: Callable[[], Awaitable[object]],
    ) -> Standing:
        """Return where the wish stands when it rests, the time is over, or the reader has gone.

        Raises:
            Refused: too many wait already, or the builder stops.
            PrewarmError: the look at it failed.
        """
        if self._closed:
            raise busy("the builder stops; ask again", retry_after_s=_RETRY_AFTER_S)
        if len(self._waiters) >= self._most:
            raise busy(
                f"{self._most} deployments wait already; ask again", retry_after_s=_RETRY_AFTER_S
            )
        rested: asyncio.Future[Standing] = asyncio.get_running_loop().create_future()
        left = asyncio.ensure_future(gone())
        self._waiters[rested] = wish
        try:
            self._keep_looking()
            both: set[asyncio.Future[Any]] = {rested, left}
            await asyncio.wait(both, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            return rested.result() if rested.done() else await self._last(wish, present)
        finally:
            del self._waiters[rested]
            rested.cancel()
            left.cancel()

    def changed(self) -> None:
        """Look at once: something came to rest. Only from the thread of the event loop."""
        self._changed.set()

    def close(self) -> None:
        """Send everybody away who waits. Only from the thread of the event loop."""
        self._closed = True
        self._fail(busy("the builder stops; ask again", retry_after_s=_RETRY_AFTER_S))

    async def _last(self, wish: Wish, present: Standing) -> Standing:
        return (await self._look([wish])).get(wish, present)

    def _keep_looking(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_while_waited_for())

    async def _look_while_waited_for(self) -> None:
        while self._waiters:
            self._changed.clear()
            try:
                self._end(await self._look(set(self._waiters.values())))
            except Exception as error:
                self._fail(error)
                return
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _end(self, found: Mapping[Wish, Standing]) -> None:
        for rested, wish in self._waiters.items():
            standing = found.get(wish)
            if standing is not None and standing.rests and not rested.done():
                rested.set_result(standing)

    def _fail(self, error: Exception) -> None:
        for rested in self._waiters:
            if not rested.done():
                rested.set_exception(error)
