from __future__ import annotations

import time

from prewarm.registry.heard import MAX_KEPT, Heard


def test_paths_are_kept_once_until_they_are_taken_with_the_time_of_the_last():
    heard = Heard()
    before_s = time.monotonic()
    heard.note(["a", "b"])
    heard.note(["a"])
    paths, at_s = heard.take()
    assert paths == {"a", "b"}
    assert before_s <= at_s <= time.monotonic()
    assert heard.take() == (set(), at_s)


def test_the_worst_fault_hides_the_others():
    heard = Heard()
    for fault in ("overflow", "died", "exhausted"):
        heard.fault(fault)
    assert heard.take_fault() == "died"
    assert heard.take_fault() is None


def test_paths_that_nobody_takes_become_an_overflow():
    heard = Heard()
    heard.note(str(number) for number in range(MAX_KEPT + 1))
    assert heard.take()[0] == set()
    assert heard.take_fault() == "overflow"
