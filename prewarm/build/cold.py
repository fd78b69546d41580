"""The cold seconds of a build's calls, as far as they can be told. Pure.

A build holds still while somebody else has the turn on its device, which is no time of its own; and
where another build worked beside it, its seconds say little, so they are not told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: What a child adds to a call: when it began and ended, by the monotonic clock of the machine.
BETWEEN = "cold_between"

AloneSeconds = Callable[[float, float], float | None]


def with_own_seconds(
    calls: Sequence[Mapping[str, Any]], alone_s: AloneSeconds
) -> list[dict[str, Any]]:
    """Return calls with what ``alone_s`` says of the time between their begin and end."""
    return [_own(dict(call), alone_s) for call in calls]


def _own(call: dict[str, Any], alone_s: AloneSeconds) -> dict[str, Any]:
    between = call.pop(BETWEEN, None)
    if between is not None:
        seconds = alone_s(*between)
        call["cold_s"] = None if seconds is None else round(seconds, 3)
    return call
