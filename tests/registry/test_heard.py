from __future__ import annotations

from prewarm.registry.heard import MAX_KEPT, Heard


def test_paths_are_kept_once_until_they_are_taken():
    heard = Heard()
    heard.note(["a", "b"])
    heard.note(["a"])
    assert heard.take() == {"a", "b"}
    assert heard.take() == set()


def test_the_worst_fault_hides_the_others():
    heard = Heard()
    for fault in ("overflow", "died", "exhausted"):
        heard.fault(fault)
    assert heard.take_fault() == "died"
    assert heard.take_fault() is None


def test_paths_that_nobody_takes_become_an_overflow():
    heard = Heard()
    heard.note(str(number) for number in range(MAX_KEPT + 1))
    assert heard.take() == set()
    assert heard.take_fault() == "overflow"
