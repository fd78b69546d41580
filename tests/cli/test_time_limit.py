"""The limit on what has none of its own."""

from __future__ import annotations

import signal
import threading

import pytest

from prewarm.cli.time_limit import time_limit
from prewarm.errors import NotWarm


def test_what_does_not_end_is_ended() -> None:
    never = threading.Event()

    def work() -> None:
        try:
            never.wait(60)
        except Exception:
            pytest.fail("it can be swallowed on the way")

    told = r"not done after 0\.1 s; raise --timeout"
    with pytest.raises(NotWarm, match=told) as caught, time_limit(0.1):
        work()

    assert caught.value.code == "timed_out"


def test_what_ends_leaves_no_alarm_behind() -> None:
    before = signal.getsignal(signal.SIGALRM)

    with time_limit(60):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0

    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getsignal(signal.SIGALRM) == before


def test_another_thread_has_no_limit() -> None:
    ended: list[str] = []

    def work() -> None:
        with time_limit(0.0001):
            ended.append("well")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ended == ["well"]
