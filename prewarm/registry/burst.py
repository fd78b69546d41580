"""When events are worth a look: a burst is one set of paths, told after a short quiet.

Owns the times. Pure: the clock is an argument, in seconds that only grow. Rules:

- A burst is told once nothing happened for ``QUIET_S``, or after ``LONGEST_S`` while it goes on.
- Each path is told again when it was quiet for the settle time, whatever happens elsewhere.
- Looking takes a quarter of the time at most: after a look there is rest, by how long it took.
"""

from __future__ import annotations

from collections.abc import Iterable

#: Seconds without an event that end a burst.
QUIET_S = 0.1

#: Seconds after which a burst that goes on is told.
LONGEST_S = 0.5

#: Seconds after the settle time: clocks of file systems tick in up to 10 ms.
AFTER_SETTLING_S = 0.02

#: The rest after a look, in times of what it took, and at most.
REST_SHARE, LONGEST_REST_S = 3, 10.0

#: More paths than this in one set mean "everything", and none is added to them.
MAX_PATHS = 5_000


class Burst:
    """The paths of the events since the last look."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._paths: set[str] = set()
        self._first_s = 0.0
        self._last_s = 0.0
        #: When something last happened to each path that is still to be told as settled.
        self._settling: dict[str, float] = {}
        self._rests_until_s = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be told unless something happens."""
        return not (self._paths or self._settling)

    def add(self, paths: Iterable[str], now_s: float) -> None:
        """Add the paths of events that happened up to now."""
        paths = tuple(paths)
        if not paths:
            return
        if not self._paths:
            self._first_s = now_s
        self._last_s = now_s
        if len(self._paths) <= MAX_PATHS:
            self._paths.update(paths)
        for path in paths:
            if len(self._settling) <= MAX_PATHS or path in self._settling:
                self._settling[path] = now_s

    def looked(self, now_s: float, took_s: float) -> None:
        """Note that a look has ended and how long it took."""
        self._rests_until_s = now_s + min(REST_SHARE * took_s, LONGEST_REST_S)

    def due(self, now_s: float) -> frozenset[str] | None:
        """Return the paths to look at now, None while there are none or it is too early."""
        if now_s < self._rests_until_s or not self._paths:
            return None
        if now_s - self._last_s < QUIET_S and now_s - self._first_s < LONGEST_S:
            return None
        told = frozenset(self._paths)
        self._paths.clear()
        return told

    def settled(self, now_s: float) -> frozenset[str] | None:
        """Return the paths that have been quiet for the settle time, None where there are none."""
        if now_s < self._rests_until_s or not self._settling:
            return None
        quiet_since_s = now_s - self._settle_s - AFTER_SETTLING_S
        if len(self._settling) > MAX_PATHS:  # those left out may be any of all
            if max(self._settling.values()) > quiet_since_s:
                return None
            told = frozenset(self._settling)
        else:
            told = frozenset(path for path, at_s in self._settling.items() if at_s <= quiet_since_s)
        for path in told:
            del self._settling[path]
        return told or None

    def forget(self) -> None:
        """Forget what is to be told now, since everything is looked at; not what must settle."""
        self._paths.clear()
