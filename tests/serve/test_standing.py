from __future__ import annotations

import pytest

from prewarm.serve.shelf import Named
from prewarm.serve.standing import Standing, Wish, is_built_elsewhere, standing_of
from prewarm.store.entries import Entry
from prewarm.store.status import NEEDS_REASON, Status

ANY, HERE, THERE = Wish("m", None), Wish("m", "here"), Wish("m", "there")
WAITS = {Status.SETTLING, Status.QUEUED, Status.BUILDING, Status.PROVING, Status.STALE}


def _entry(status: Status, environment_id: str = "here") -> Entry:
    reason = f"why {status}" if status in NEEDS_REASON else None
    return Entry(
        1, "m", environment_id, status, reason, None, 0, None, None, None, None, False, None, None,
        None, None, None, None, "", "",
    )  # fmt: skip


def _named(status: Status, environment_id: str = "here") -> Named:
    return Named("m", environment_id, status, None, None, b'{"model":"m"}')


@pytest.mark.parametrize("status", list(Status))
def test_every_status_rests_or_is_waited_for(status: Status) -> None:
    found = standing_of(HERE, (), [_entry(status)])
    if status in (Status.WARM, Status.PARTIAL):
        # In the database, and in no manifest yet.
        assert (found.status, found.rests, found.entry_json) == (Status.PROVING, False, None)
    else:
        assert found.status is status
        assert found.rests is (status not in WAITS)
        assert found.reason == _entry(status).reason


def test_what_a_manifest_names_rests_whatever_the_database_says() -> None:
    found = standing_of(HERE, [_named(Status.PARTIAL)], [_entry(Status.QUEUED)])
    assert (found.status, found.rests) == (Status.PARTIAL, True)
    assert found.to_dict()["entry"] == {"model": "m"}


def test_another_environment_is_no_answer() -> None:
    found = standing_of(THERE, [_named(Status.WARM)], [_entry(Status.FAILED)])
    assert found == Standing("m", None)
    assert is_built_elsewhere(THERE, [_entry(Status.FAILED)])
    assert not is_built_elsewhere(HERE, [_entry(Status.FAILED)])
    assert not is_built_elsewhere(THERE, [])


def test_of_any_environment_the_nearest_to_warm_counts() -> None:
    both = [_named(Status.PARTIAL, "a"), _named(Status.WARM, "b")]
    assert standing_of(ANY, both, []).status is Status.WARM
    entries = [_entry(Status.FAILED, "a"), _entry(Status.QUEUED, "b")]
    found = standing_of(ANY, (), entries)
    assert (found.status, found.rests) == (Status.QUEUED, False)


def test_a_declaration_that_cannot_be_read_is_the_reason_in_every_environment() -> None:
    found = standing_of(HERE, (), [_entry(Status.FAILED, "")])
    assert (found.status, found.reason, found.rests) == (Status.FAILED, "why failed", True)
    assert not is_built_elsewhere(HERE, [_entry(Status.FAILED, "")])


def test_a_model_without_an_entry_is_waited_for() -> None:
    found = standing_of(ANY, (), [])
    assert found.to_dict() == {
        "model": "m", "status": None, "reason": None, "code": None, "entry": None,
    }  # fmt: skip
    assert not found.rests
