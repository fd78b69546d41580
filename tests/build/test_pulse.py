"""What a long read tells: life from its own thread, and an end when asked."""

from __future__ import annotations

import threading

import pytest

from prewarm.build.interrupted import Interrupted
from prewarm.build.pulse import Pulse


def test_it_tells_of_life_from_the_thread_that_made_it_alone() -> None:
    told: list[None] = []
    pulse = Pulse(threading.Event(), lambda: told.append(None))
    other = threading.Thread(target=pulse)
    other.start()
    other.join()
    assert told == []
    pulse()
    pulse()  # at most once a second
    assert len(told) == 1


def test_it_ends_the_reading_once_the_work_is_to_stop() -> None:
    stop = threading.Event()
    pulse = Pulse(stop)
    pulse()
    stop.set()
    with pytest.raises(Interrupted):
        pulse()
