from __future__ import annotations

import pytest

from prewarm.serve import rate
from prewarm.serve.rate import Buckets, Rate


def test_a_burst_is_taken_then_so_many_a_second() -> None:
    buckets = Buckets(Rate(per_s=2, burst=3))
    assert [buckets.take("a", now_s=0.0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert buckets.take("a", now_s=0.25) == pytest.approx(0.25)
    assert buckets.take("a", now_s=0.5) == 0
    assert buckets.take("a", now_s=0.5) == pytest.approx(0.5)


def test_a_pause_fills_the_bucket_and_no_more() -> None:
    buckets = Buckets(Rate(per_s=2, burst=2))
    for _ in range(2):
        buckets.take("a", now_s=0.0)
    assert [bool(buckets.take("a", now_s=1e9)) for _ in range(3)] == [False, False, True]


def test_peers_do_not_take_from_each_other() -> None:
    buckets = Buckets(Rate(per_s=1, burst=1))
    assert [buckets.take(peer, now_s=0.0) for peer in ("a", "b", "a")] == [0, 0, 1]


def test_a_clock_that_goes_back_gives_nothing() -> None:
    buckets = Buckets(Rate(per_s=1, burst=1))
    assert buckets.take("a", now_s=100.0) == 0
    assert buckets.take("a", now_s=0.0) == 1


def test_the_peer_that_was_silent_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate, "MOST_PEERS", 2)
    buckets = Buckets(Rate(per_s=1, burst=1))
    for peer in ("a", "b", "a", "c"):
        buckets.take(peer, now_s=0.0)
    assert buckets.take("a", now_s=0.0) == 1  # remembered
    assert buckets.take("b", now_s=0.0) == 0  # forgotten, so full again
