"""``POST /v1/requests``: a deployment waits for a model, so its entry goes first.

Owns what may be asked and how it is answered. A wish is kept in the database, so that it outlives
this process; it is kept for a while too where nobody stays to wait.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated

from anyio import to_thread
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from prewarm.environment import Environment
from prewarm.errors import EnvironmentDiffers
from prewarm.serve.body import Body, read_body
from prewarm.serve.house import House
from prewarm.serve.naming import model_named
from prewarm.serve.refused import Refused
from prewarm.serve.shelf import Shelf, Shelves
from prewarm.serve.standing import Standing, Wish, is_built_elsewhere, standing_of
from prewarm.serve.waiting import Waiting
from prewarm.store.database import Database
from prewarm.store.timestamp import timestamp

#: Who does not wait would have the model all the same, at the next start.
LEAST_WISH_S = 60.0

ModelName = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f]+$")]
EnvironmentId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class Ask(Body):
    """What a deployment asks for; its environment as facts, as their id, or whichever."""

    model: ModelName
    environment: EnvironmentId | dict[str, str | None] | None = None
    wait_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0

    @property
    def environment_id(self) -> str | None:
        """The id of the environment, if one was given."""
        if isinstance(self.environment, dict):
            return Environment.from_facts(self.environment).id
        return self.environment


class Requests:
    """Takes wishes, and tells where each stands."""

    def __init__(self, house: House, shelves: Shelves) -> None:
        self._house = house
        self._shelves = shelves
        self.waiting = Waiting(self._look, most=house.limits.waiters)
        house.metrics.watch_waiting(lambda: len(self.waiting))

    async def answer(self, request: Request) -> Response:
        """Record a wish, wait for it as long as was asked for, and answer where it stands.

        Raises:
            Refused: the body is wrong, the model unknown, or too many wait.
            EnvironmentDiffers: the model is built, but not for this environment.
        """
        limits = self._house.limits
        ask = await read_body(request, Ask, limit_bytes=limits.request_bytes, limit_s=limits.body_s)
        if ask.wait_s > limits.wait_s:
            raise Refused(f"wait_s: found {ask.wait_s:g}, expected {limits.wait_s:g} at most")
        shelf = await self._shelves.present()
        wish, standing = await to_thread.run_sync(self._take, ask, shelf)
        if not standing.rests:
            self._house.wake()
            if ask.wait_s:
                standing = await self.waiting.until_rest(
                    wish, standing, limit_s=ask.wait_s, gone=request.receive
                )
        return JSONResponse(standing.to_dict())

    def _take(self, ask: Ask, shelf: Shelf) -> tuple[Wish, Standing]:
        now_s = self._house.now_s()
        with Database(self._house.database) as database:
            wish = Wish(model_named(ask.model, shelf, database), ask.environment_id)
            entries = database.entries_of(wish.model)
            standing = standing_of(wish, shelf.named.get(wish.model, ()), entries)
            if standing.rests:
                return wish, standing
            if is_built_elsewhere(wish, entries):
                raise _built_elsewhere(wish)
            database.put_request(
                wish.model,
                wish.environment_id,
                at=timestamp(now_s),
                until=timestamp(now_s + max(ask.wait_s, LEAST_WISH_S)),
            )
            return wish, standing

    async def _look(self, wishes: Collection[Wish]) -> Mapping[Wish, Standing]:
        shelf = await self._shelves.present()

        def look() -> Mapping[Wish, Standing]:
            with Database(self._house.database) as database:
                return {
                    wish: standing_of(
                        wish, shelf.named.get(wish.model, ()), database.entries_of(wish.model)
                    )
                    for wish in wishes
                }

        return await to_thread.run_sync(look)


def _built_elsewhere(wish: Wish) -> EnvironmentDiffers:
    return EnvironmentDiffers(
        f"{wish.model}: is not built for environment {wish.environment_id}; run "
        f"`prewarm explain {wish.model}` where it starts to see what differs"
    )
