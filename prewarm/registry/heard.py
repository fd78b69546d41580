"""What the observer's threads tell the watcher: where something happened, and what went wrong.

Owns the lock between them. Nothing is lost while nobody asks: paths are kept once each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Literal

Fault = Literal["overflow", "exhausted", "died"]

#: The worse fault hides the others: what mends it mends them.
_WORSE: tuple[Fault, ...] = ("overflow", "exhausted", "died")

#: More paths than this are kept as an overflow: a look at everything costs less than their list.
MAX_KEPT = 20_000


class Heard:
    """The paths and the worst fault since the last time that somebody asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._paths: set[str] = set()
        self._fault: Fault | None = None
        self._last_s = 0.0

    def note(self, paths: Iterable[str]) -> None:
        """Keep where something happened."""
        with self._lock:
            self._last_s = time.monotonic()
            self._paths.update(paths)
            full = len(self._paths) > MAX_KEPT
            if full:
                self._paths.clear()
        if full:
            self.fault("overflow")

    def fault(self, fault: Fault) -> None:
        """Keep what went wrong."""
        with self._lock:
            if self._fault is None or _WORSE.index(fault) > _WORSE.index(self._fault):
                self._fault = fault

    def take(self) -> tuple[set[str], float]:
        """Return the paths and forget them; and when the last one was heard, monotonic."""
        with self._lock:
            paths, self._paths = self._paths, set()
            return paths, self._last_s

    def take_fault(self) -> Fault | None:
        """Return the worst fault and forget it."""
        with self._lock:
            fault, self._fault = self._fault, None
            return fault
