from __future__ import annotations

from prewarm.registry.burst import (
    AFTER_SETTLING_S,
    LONGEST_REST_S,
    LONGEST_S,
    MAX_PATHS,
    QUIET_S,
    REST_SHARE,
    Burst,
)

SETTLE_S = 2.0


def test_a_burst_is_told_after_a_short_quiet_and_once():
    burst = Burst(SETTLE_S)
    burst.add(["a"], 10.0)
    burst.add(["b"], 10.0625)
    assert burst.due(10.0625 + QUIET_S / 2) is None
    assert burst.due(10.0635 + QUIET_S) == {"a", "b"}
    assert burst.due(99.0) is None


def test_a_burst_that_goes_on_is_told_in_between():
    burst = Burst(SETTLE_S)
    now_s = 10.0
    while now_s < 10.0 + LONGEST_S:
        burst.add(["a"], now_s)
        assert burst.due(now_s) is None
        now_s += QUIET_S / 2
    burst.add(["a"], now_s)
    assert burst.due(now_s) == {"a"}


def test_a_path_is_told_again_when_it_has_settled_whatever_goes_on_elsewhere():
    burst = Burst(SETTLE_S)
    burst.add(["a"], 10.0)
    now_s = 10.0
    while now_s < 10.0 + SETTLE_S:
        burst.add(["growing"], now_s)
        burst.due(now_s)
        assert burst.settled(now_s) is None
        now_s += 0.25
    assert burst.settled(10.001 + SETTLE_S + AFTER_SETTLING_S) == {"a"}
    assert burst.settled(now_s + SETTLE_S) == {"growing"}
    assert burst.settled(99.0) is None


def test_a_path_that_changes_again_settles_later():
    burst = Burst(SETTLE_S)
    burst.add(["a"], 10.0)
    burst.add(["a"], 11.0)
    assert burst.settled(10.0 + SETTLE_S + AFTER_SETTLING_S) is None
    assert burst.settled(11.001 + SETTLE_S + AFTER_SETTLING_S) == {"a"}


def test_a_look_at_everything_leaves_what_must_settle():
    burst = Burst(SETTLE_S)
    burst.add(["a"], 10.0)
    burst.forget()
    assert burst.due(99.0) is None
    assert burst.settled(99.0) == {"a"}


def test_a_long_look_is_followed_by_a_rest():
    burst = Burst(SETTLE_S)
    burst.looked(10.0, 1.0)
    burst.add(["a"], 10.0)
    assert burst.due(10.0 + REST_SHARE - 0.1) is None
    assert burst.settled(10.0 + REST_SHARE - 0.1) is None
    assert burst.due(10.0 + REST_SHARE) == {"a"}
    burst.looked(20.0, 1000.0)
    burst.add(["a"], 20.0)
    assert burst.due(20.0 + LONGEST_REST_S) == {"a"}


def test_no_more_paths_are_kept_than_are_of_use():
    burst = Burst(SETTLE_S)
    for number in range(3 * MAX_PATHS):
        burst.add([f"{number}"], 10.0)
    told = burst.due(99.0)
    assert told is not None
    assert len(told) == MAX_PATHS + 1
    settled = burst.settled(99.0)
    assert settled is not None
    assert len(settled) == MAX_PATHS + 1
