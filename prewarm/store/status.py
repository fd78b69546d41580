"""The statuses of an entry and the moves between them: the state machine as one table.

Pure: no file, clock or database. ``entries.py`` turns each move into one guarded UPDATE;
``schema.py`` writes the same words into a CHECK, and a test holds the two together.

- ``warm`` and ``partial`` are reached from ``proving`` alone: only what is proven is called warm.
- ``building`` is reached from ``queued`` (a worker took it) and from ``proving`` (the proof against
  a shared bundle failed, so the checkpoint needs a build of its own).
- A status may move to itself, so that its reason or what is known of the work can change.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Status(StrEnum):
    """Where an entry stands; the words of the contract, in the order of the flow."""

    SETTLING = "settling"
    """The checkpoint is still being written."""
    QUEUED = "queued"
    """Waits for a worker."""
    BUILDING = "building"
    """A child compiles it."""
    PROVING = "proving"
    """A fresh process starts from the packed bundle and is watched."""
    WARM = "warm"
    """Proven: a start compiles nothing."""
    PARTIAL = "partial"
    """Usable, but something compiles, re-tunes or is not covered at a start."""
    UNCACHEABLE = "uncacheable"
    """The graph bypasses the cache."""
    FAILED = "failed"
    """The last attempt ended without a bundle, or the checkpoint or declaration is wrong."""
    STALE = "stale"
    """Inputs changed since it was proven."""
    RETIRED = "retired"
    """The checkpoint is gone."""


WORKING = frozenset({Status.BUILDING, Status.PROVING})
"""A worker holds the entry; the others rest."""

PUBLISHED = frozenset({Status.WARM, Status.PARTIAL})
"""These have a bundle in the manifest."""

NEEDS_REASON = frozenset(
    {
        Status.SETTLING,
        Status.PARTIAL,
        Status.UNCACHEABLE,
        Status.FAILED,
        Status.STALE,
        Status.RETIRED,
    }
)
"""These say in one sentence why the entry is not simply warm or on its way."""

# What a look at the registry can find about an entry that nobody works on.
_SEEN_AGAIN = frozenset(
    {Status.SETTLING, Status.QUEUED, Status.FAILED, Status.STALE, Status.RETIRED}
)

MOVES: Mapping[Status, frozenset[Status]] = MappingProxyType(
    {
        Status.SETTLING: frozenset({Status.SETTLING, Status.QUEUED, Status.FAILED, Status.RETIRED}),
        Status.QUEUED: frozenset(
            {
                Status.QUEUED,
                Status.BUILDING,
                Status.PROVING,
                Status.SETTLING,
                Status.FAILED,
                Status.RETIRED,
            }
        ),
        Status.BUILDING: frozenset(
            {
                Status.BUILDING,
                Status.PROVING,
                Status.UNCACHEABLE,
                Status.FAILED,
                Status.QUEUED,
                Status.SETTLING,
                Status.RETIRED,
            }
        ),
        Status.PROVING: frozenset(
            {
                Status.PROVING,
                Status.WARM,
                Status.PARTIAL,
                Status.UNCACHEABLE,
                Status.BUILDING,
                Status.FAILED,
                Status.QUEUED,
                Status.SETTLING,
                Status.RETIRED,
            }
        ),
        Status.WARM: _SEEN_AGAIN | {Status.PROVING},
        Status.PARTIAL: _SEEN_AGAIN | {Status.PROVING},
        Status.UNCACHEABLE: _SEEN_AGAIN | {Status.PROVING},
        Status.FAILED: frozenset({Status.FAILED, Status.QUEUED, Status.SETTLING, Status.RETIRED}),
        Status.STALE: _SEEN_AGAIN,
        Status.RETIRED: frozenset({Status.RETIRED, Status.QUEUED, Status.SETTLING, Status.FAILED}),
    }
)


def allowed(present: Status, to: Status) -> bool:
    """Whether an entry may move from ``present`` to ``to``."""
    return to in MOVES[present]


def sources(to: Status) -> tuple[Status, ...]:
    """Return the statuses from which an entry may move to ``to``, in the order of the flow."""
    return tuple(status for status in Status if to in MOVES[status])
