"""Watching a registry: an iterator of change sets, each with where to look and why.

Decides nothing about checkpoints: events only say where to look, and the state of the disk decides.
Rules:

- Every fault ends in a look at everything: an overflow, a thread that died, a root that came back.
- A full look is due after ``rescan_s`` in every case, whatever was heard; later, but in the end
  too, where looking takes long.
- Where the registry is not there (``presence``), a set tells so once and nothing may be concluded.
- Who looks does so in his own thread: a look that raises ends no watching, and what is heard
  meanwhile is kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prewarm.registry.burst import MAX_PATHS, Burst
from prewarm.registry.observing import Observing
from prewarm.registry.presence import Presence, RootSeen, registry_is_there
from prewarm.registry.watch_method import POLL_S, WatchMethod

#: Seconds between two looks at what was heard, while something happens and while nothing does.
TICK_S, IDLE_TICK_S = 0.1, 0.5

#: Seconds between two looks at the root itself: whether it is there, and the same.
CHECK_S = 1.0

#: The time between two looks on the timer is this many times what the last one took (a quarter of
#: a percent of one core), and at most this many times what was asked for.
REST_SHARE, LONGEST_REST = 400, 10

Why = Literal[
    "start", "event", "settled", "timer", "overflow", "observer died", "method", "away", "back"
]


@dataclass(frozen=True, slots=True)
class Changes:
    """Where to look, and why.

    ``paths`` is None for everything; with ``why`` "away" it is empty, and nothing may be looked at.
    ``presence`` says what may be concluded from what is missing. ``notes`` are lines for the log,
    each said once.
    """

    paths: frozenset[Path] | None
    why: Why
    presence: Presence
    method: WatchMethod | None
    notes: tuple[str, ...] = ()


class Watcher:
    """Watches one registry until ``stop`` is set; ``seen`` is what to remember of its root."""

    def __init__(
        self,
        root: Path,
        *,
        rescan_s: float,
        settle_s: float,
        stop: threading.Event,
        remembered: RootSeen | None = None,
        poll: bool = False,
        poll_s: float = POLL_S,
    ) -> None:
        self._root = root
        self._rescan_s = rescan_s
        self._stop = stop
        self._observing = Observing(poll=poll, poll_s=poll_s)
        self._burst = Burst(settle_s)
        self._presence = Presence("gone", None, remembered)
        self._notes: list[str] = []
        self._full_at_s = 0.0
        self._took_s = 0.0
        self._noted_s: float | None = None
        self._next_check_s = 0.0

    @property
    def seen(self) -> RootSeen | None:
        """Return what to remember of the root, for a watcher of another process."""
        return self._presence.seen

    @property
    def method(self) -> WatchMethod | None:
        """Return how the registry is watched; None before it ever was."""
        return self._observing.method

    def note_look(self, took_s: float) -> None:
        """Tell how long a look took, where another thread looks than the one that iterates."""
        self._noted_s = took_s

    def changes(self) -> Iterator[Changes]:
        """Yield where to look, first everything; end at once when ``stop`` is set."""
        try:
            found: Changes | None = self._first()
            while not self._stop.is_set():
                if found is not None:
                    before_s = time.monotonic()
                    yield found
                    self._looked(found, time.monotonic(), before_s)
                if self._stop.wait(IDLE_TICK_S if self._burst.is_idle else TICK_S):
                    return
                found = self._next(time.monotonic())
        finally:
            self._observing.end()

    def _first(self) -> Changes:
        self._see(registry_is_there(self._root, self._presence.seen))
        if not self._presence.is_there:
            return self._set("away", frozenset())
        self._begin()
        return self._full("start")

    def _next(self, now_s: float) -> Changes | None:
        noted_s, self._noted_s = self._noted_s, None
        if noted_s is not None:
            self._plan(now_s, noted_s)
        self._burst.add(*self._observing.take())
        if now_s >= self._next_check_s:
            self._next_check_s = now_s + CHECK_S
            why = self._check_root()
            if why == "away":
                return self._set(why, frozenset())
            if why == "back":
                return self._full(why)
        if not self._presence.is_there:
            return None
        mended = self._observing.mend(now_s)
        if mended is not None:
            return self._full(mended)
        if self._is_full_due(now_s):
            return self._full("timer")
        told = self._burst.due(now_s)
        if told is not None:
            return self._set("event", told)
        told = self._burst.settled(now_s)
        return None if told is None else self._set("settled", told)

    def _check_root(self) -> Literal["away", "back"] | None:
        """Look whether the registry is there and the same; end or begin watching accordingly."""
        before = self._presence
        now = registry_is_there(self._root, before.seen)
        self._see(now)
        if not now.is_there:
            self._observing.end()
            return "away" if before.is_there or now.reason != before.reason else None
        if before.is_there and before.seen == now.seen and before.bare == now.bare:
            return None
        what = "has other mounts or is another directory now" if before.is_there else "is back"
        self._notes.append(f"registry {self._root} {what}: looking at everything")
        self._observing.end()
        self._begin()
        return "back"

    def _see(self, presence: Presence) -> None:
        if presence.reason and presence.reason != self._presence.reason:
            self._notes.append(presence.reason)
        self._presence = presence

    def _begin(self) -> None:
        seen = self._presence.seen
        assert seen is not None
        self._observing.begin(Path(seen.path))

    def _looked(self, found: Changes, now_s: float, before_s: float) -> None:
        """Plan the next looks by how long this one took."""
        self._plan(now_s, now_s - before_s)
        if found.paths is None:
            self._full_at_s = now_s
        if found.why == "timer":
            self._observing.look_after()

    def _plan(self, now_s: float, took_s: float) -> None:
        self._took_s = took_s
        self._burst.looked(now_s, took_s)

    def _is_full_due(self, now_s: float) -> bool:
        rest_s = min(REST_SHARE * self._took_s, LONGEST_REST * self._rescan_s)
        return now_s >= self._full_at_s + max(self._rescan_s, rest_s)

    def _full(self, why: Why) -> Changes:
        self._burst.forget()
        return self._set(why, None)

    def _set(self, why: Why, paths: frozenset[str] | None) -> Changes:
        notes = (*self._notes, *self._observing.notes)
        self._notes.clear()
        self._observing.notes.clear()
        told = None if paths is None or len(paths) > MAX_PATHS else frozenset(map(Path, paths))
        return Changes(told, why, self._presence, self.method, notes)
