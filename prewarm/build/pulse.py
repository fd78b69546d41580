"""The pulse of long reading: a look that reads a large checkpoint ends when asked and is no hang.

Owns what happens every so many bytes of a read. Called by the thread that made it alone, it tells
the service manager that the service lives; another thread's reading says nothing of that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from prewarm.build.interrupted import Interrupted

#: A watchdog waits for many times this.
TELL_S = 1.0


class Pulse:
    """Called while something long is read."""

    def __init__(self, stop: threading.Event, alive: Callable[[], None] | None = None) -> None:
        self._stop = stop
        self._alive = alive
        self._thread = threading.get_ident()
        self._told_s = 0.0

    def __call__(self) -> None:
        """Tell that there is life.

        Raises:
            Interrupted: the work is to stop.
        """
        if self._stop.is_set():
            raise Interrupted("interrupted; what was read of whole files is kept")
        now_s = time.monotonic()
        if self._alive is None or threading.get_ident() != self._thread:
            return
        if now_s - self._told_s >= TELL_S:
            self._told_s = now_s
            self._alive()
