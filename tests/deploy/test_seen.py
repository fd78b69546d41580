"""Which manifest was read last, and which one is older."""

from __future__ import annotations

import pytest

from prewarm.deploy.seen import Mark, marks_from, marks_to_json, newer_than, with_marks_of
from prewarm.store.manifest import Manifest

EARLY, LATE = "2027-01-15T08:00:00.000Z", "2027-01-16T08:00:00.000Z"


def manifest(generation: int, at: str = EARLY, builder: str = "gpu-1") -> Manifest:
    return Manifest(
        builder=builder, version="1", environments={}, entries=(), generated_at=at,
        generation=generation,
    )  # fmt: skip


SEEN = with_marks_of({}, [manifest(5)])


@pytest.mark.parametrize(
    ("found", "is_older"),
    [
        (manifest(5), False),
        (manifest(6), False),
        (manifest(4), True),
        (manifest(6, LATE), False),
        (manifest(1, LATE), False),  # its builder was set up anew
        (manifest(9, "2026-01-15T08:00:00.000Z"), True),
        (manifest(1, builder="gpu-2"), False),
    ],
)
def test_older_is_by_time_then_by_generation(found: Manifest, is_older: bool) -> None:
    assert (newer_than(SEEN, found) is not None) == is_older


def test_the_newest_stays_whatever_is_read_later() -> None:
    after = with_marks_of(SEEN, [manifest(3), manifest(2, LATE, "gpu-2")])

    assert after == {"gpu-1": Mark(EARLY, 5), "gpu-2": Mark(LATE, 2)}


def test_marks_survive_json_and_what_is_none_is_left_out() -> None:
    assert marks_from(marks_to_json(SEEN)) == SEEN
    bad = {"a": [EARLY], "b": ["x", 1], "c": [EARLY, True], "d": [EARLY, "1"], "e": None}
    assert marks_from(bad | marks_to_json(SEEN)) == SEEN
    for nothing in (None, [], "x", 1):
        assert marks_from(nothing) == {}


def test_builders_that_are_long_gone_are_forgotten() -> None:
    many = [manifest(number, EARLY, f"b{number}") for number in range(2000)]

    after = with_marks_of({}, many)

    assert len(after) == 1024
    assert "b1999" in after
    assert "b0" not in after
