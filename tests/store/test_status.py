from __future__ import annotations

import itertools

import pytest

from prewarm.store.status import MOVES, NEEDS_REASON, PUBLISHED, WORKING, Status, allowed, sources


def test_moves_name_every_status() -> None:
    assert set(MOVES) == set(Status)
    assert set().union(*MOVES.values()) == set(Status)


def test_warm_and_partial_are_reached_from_a_proof_alone() -> None:
    for status in PUBLISHED:
        assert sources(status) == (Status.PROVING,)


def test_building_is_reached_from_the_queue_or_from_a_failed_proof() -> None:
    assert sources(Status.BUILDING) == (Status.QUEUED, Status.BUILDING, Status.PROVING)


def test_every_status_but_a_working_one_can_be_retired_and_queued_again() -> None:
    for status in set(Status) - WORKING:
        assert allowed(status, Status.RETIRED)
        assert allowed(status, Status.QUEUED)


def test_statuses_that_need_a_reason_rest() -> None:
    assert not NEEDS_REASON & WORKING
    assert Status.WARM not in NEEDS_REASON


@pytest.mark.parametrize(("present", "to"), list(itertools.product(Status, Status)))
def test_sources_and_allowed_agree(present: Status, to: Status) -> None:
    assert (present in sources(to)) is allowed(present, to)
