"""A limit on a whole command, for whatever has none of its own: a child, a disk without answer."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from prewarm.errors import NotWarm


class _Over(BaseException):
    """Not to be caught on the way by who tells our errors."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """End the block after so many seconds; in another thread than the main one it has no limit.

    Raises:
        NotWarm: the time is over (code "timed_out").
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(*_: object) -> None:
        raise _Over

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _Over:
        raise NotWarm(
            f"the hook is not done after {seconds:g} s; raise --timeout, or look at what is slow "
            "here",
            code="timed_out",
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
