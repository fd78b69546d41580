"""When a failed build is tried again: a table of pauses, and what waits for a change or a word."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from prewarm.build.job import Job
from prewarm.build.retry import (
    JITTER,
    LONGEST_PAUSE_S,
    MOST_ATTEMPTS,
    NEEDS_CHANGE,
    decide_retry,
    inputs_changed,
    is_due,
)
from prewarm.store.database import DATABASE_NAME, Database
from prewarm.store.entries import Entry
from prewarm.store.status import Status
from prewarm.store.timestamp import epoch_seconds, timestamp

AT_S = 1_800_000_000.0
AT = timestamp(AT_S)


@pytest.mark.parametrize(
    ("attempts", "pause_s"),
    [(1, 60), (2, 240), (3, 960), (4, 3840), (5, 15360), (6, LONGEST_PAUSE_S), (7, 21600)],
)
def test_pauses_grow_up_to_a_longest(attempts: int, pause_s: float) -> None:
    decided = decide_retry("timeout", attempts, AT, model="m")
    assert decided.last_word is None
    assert decided.next_try_at is not None
    waited_s = epoch_seconds(decided.next_try_at) - AT_S
    assert pause_s * (1 - JITTER) - 0.001 <= waited_s <= pause_s * (1 + JITTER) + 0.001


def test_what_failed_together_is_not_tried_together_and_the_same_is_decided_twice() -> None:
    told = {decide_retry("timeout", 2, AT, model=f"m{n}").next_try_at for n in range(20)}
    assert len(told) > 15
    assert decide_retry("killed", 2, AT, model="m") == decide_retry("killed", 2, AT, model="m")


def test_the_last_word_names_the_way_on() -> None:
    decided = decide_retry("timeout", MOST_ATTEMPTS, AT, model="minilm/v1")
    assert decided.next_try_at is None
    assert decided.last_word == "gave up after 8 attempts; `prewarm retry minilm/v1`"
    assert decide_retry("timeout", MOST_ATTEMPTS - 1, AT).last_word is None


@pytest.mark.parametrize("code", sorted(NEEDS_CHANGE))
def test_what_only_a_change_mends_is_not_tried_again(code: str) -> None:
    assert decide_retry(code, 1, AT).next_try_at is None
    assert decide_retry(code, 1, AT).last_word is None


@pytest.mark.parametrize("code", ["no_space", "not_writable"])
def test_a_disk_that_refuses_is_tried_again_as_often_as_it_takes(code: str) -> None:
    decided = decide_retry(code, 1000, AT)
    assert (decided.next_try_at, decided.last_word) == (timestamp(AT_S + 60), None)


def failed(**fields: object) -> Entry:
    values: dict[str, object] = dict.fromkeys(Entry.__dataclass_fields__)
    values |= {
        "id": 1,
        "model": "m",
        "status": Status.FAILED,
        "attempts": 1,
        "checkpoint_digest": "d",
        "architecture": "a",
        "build_key": "shared",
    }
    return Entry(**{**values, **fields})  # type: ignore[arg-type]


class FakeJob:
    digest = "d"
    architecture = "a"

    def key(self, *, own_graph: bool) -> str:
        return "own" if own_graph else "shared"


JOB = cast(Job, FakeJob())


@pytest.mark.parametrize(
    ("fields", "due"),
    [
        ({"next_try_at": timestamp(AT_S + 1)}, False),
        ({"next_try_at": AT}, True),
        ({"next_try_at": None}, False),
        ({"next_try_at": None, "build_key": "own"}, False),
        ({"next_try_at": None, "attempts": 0}, True),
        ({"next_try_at": None, "checkpoint_digest": "other"}, True),
        ({"next_try_at": None, "architecture": "other"}, True),
        ({"next_try_at": timestamp(AT_S + 1), "build_key": "another declaration"}, True),
    ],
)
def test_due_is_whose_time_has_come_or_whose_inputs_changed(
    fields: dict[str, object], due: bool
) -> None:
    assert is_due(failed(**fields), JOB, AT) is due


def test_a_failed_build_says_when_it_is_tried_again_and_gives_up_in_the_end(shop) -> None:
    shop.model("m1", compile="exit")
    shop.scan()
    first = shop.entry("m1")
    assert (first.attempts, first.code) == (1, "ended_early")
    assert first.next_try_at is not None
    assert 50 < epoch_seconds(first.next_try_at) - epoch_seconds(first.updated_at) < 70
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        database.move(
            first.id, Status.FAILED, at=first.updated_at, reason="r", code=first.code, attempts=7
        )
    shop.scan()
    last = shop.entry("m1")
    assert (last.attempts, last.next_try_at, last.code) == (8, None, "ended_early")
    assert last.reason.endswith("; gave up after 8 attempts; `prewarm retry m1`")


def test_attempts_begin_anew_with_another_cause_and_with_other_inputs(shop) -> None:
    shop.model("m1", compile="exit")
    shop.scan()
    shop.scan()
    assert shop.entry("m1").attempts == 2
    shop.model("m1", compile="rubbish")
    shop.scan()
    assert (shop.entry("m1").code, shop.entry("m1").attempts) == ("rubbish", 1)
    shop.scan()
    assert shop.entry("m1").attempts == 2
    shop.model("m1", b"other weights", compile="rubbish")
    shop.scan()
    assert shop.entry("m1").attempts == 1


def test_outputs_that_differ_are_not_built_again_until_something_changes(shop) -> None:
    shop.model("m1", outputs="differ")
    shop.scan()
    entry = shop.entry("m1")
    assert (entry.code, entry.attempts, entry.next_try_at) == ("outputs_differ", 1, None)
    assert "gave up" not in entry.reason


def test_a_full_disk_keeps_its_turn_for_ever(shop) -> None:
    shop.model("m1", compile="no_space")
    shop.scan()
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        entry = shop.entry("m1")
        database.move(
            entry.id, Status.FAILED, at=entry.updated_at, reason="r", code=entry.code, attempts=99
        )
    shop.scan()
    entry = shop.entry("m1")
    assert (entry.code, entry.attempts) == ("no_space", 100)
    assert "gave up" not in entry.reason
    waits_s = epoch_seconds(entry.next_try_at) - epoch_seconds(entry.updated_at)
    assert 59 < waits_s <= 60


def test_a_failure_can_be_recognised_when_nothing_changed(shop) -> None:
    shop.model("m1", compile="exit")
    shop.scan()
    entry = shop.entry("m1")
    surveyed = cast(Job, _Seen(entry))
    assert not inputs_changed(entry, surveyed)
    assert inputs_changed(replace(entry, checkpoint_digest="x"), surveyed)


class _Seen(FakeJob):
    def __init__(self, entry: Entry) -> None:
        self.digest = entry.checkpoint_digest or ""
        self.architecture = entry.architecture or ""
        self._key = entry.build_key or ""

    def key(self, *, own_graph: bool) -> str:
        return "own" if own_graph else self._key
