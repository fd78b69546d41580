from __future__ import annotations

from collections.abc import Callable

from prewarm.store.database import Database
from prewarm.store.entries import Entry
from prewarm.store.status import Status

At = Callable[[float], str]


def put(database: Database, model: str, at: str, status: Status, code: str | None) -> Entry:
    return database.put_entry(
        model, "e", at=at, status=status, reason="why", code=code, attempts=3, next_try_at=at
    )


def test_retry_queues_what_failed_was_evicted_or_waits(database: Database, at: At) -> None:
    put(database, "failed", at(0), Status.FAILED, "timeout")
    put(database, "evicted", at(0), Status.STALE, "evicted")
    put(database, "waiting", at(0), Status.QUEUED, None)
    for model, status in (("changed", Status.STALE), ("warm", Status.WARM)):
        put(database, model, at(0), status, "stale")
    put(database, "working", at(0), Status.QUEUED, None)
    held = database.claim(owner="w", at=at(1), lease_until=at(60), model="working")
    assert held is not None

    assert database.retry(None, at=at(5)) == ("evicted", "failed", "waiting")

    entries = {entry.model: entry for entry in database.entries()}
    for model in ("failed", "evicted", "waiting"):
        entry = entries[model]
        assert (entry.status, entry.reason, entry.code) == (Status.QUEUED, None, None)
        assert (entry.attempts, entry.next_try_at, entry.updated_at) == (0, None, at(5))
    assert entries["changed"].status is Status.STALE
    assert entries["warm"].status is Status.WARM
    assert entries["working"].lease == held.lease
    assert database.retry(None, at=at(6)) == ()
    assert [event.to_status for event in database.events("failed")] == ["queued", "failed"]


def test_retry_of_one_model_leaves_the_others(database: Database, at: At) -> None:
    put(database, "a", at(0), Status.FAILED, "timeout")
    put(database, "b", at(0), Status.FAILED, "timeout")
    assert database.retry(["b", "nobody"], at=at(1)) == ("b",)
    assert [entry.status for entry in database.entries()] == [Status.FAILED, Status.QUEUED]


def test_an_entry_without_an_environment_has_nothing_to_try(database: Database, at: At) -> None:
    database.put_entry("m", "", at=at(0), status=Status.FAILED, reason="unknown key", code="c")
    assert database.retry(None, at=at(1)) == ()


def test_the_code_of_the_last_failure_outlives_the_work_on_it(database: Database, at: At) -> None:
    entry = database.put_entry("m", "e", at=at(0))
    assert database.last_failure_code(entry.id) is None
    for second, code in enumerate(("timeout", "killed")):
        database.move(entry.id, Status.BUILDING, at=at(second))
        database.move(entry.id, Status.FAILED, at=at(second), reason="why", code=code)
        database.move(entry.id, Status.QUEUED, at=at(second))
    other = database.put_entry("m", "e2", at=at(0), status=Status.FAILED, reason="r", code="other")
    assert database.last_failure_code(entry.id) == "killed"
    assert database.last_failure_code(other.id) == "other"


def test_what_waits_for_room_says_so_and_keeps_its_place(database: Database, at: At) -> None:
    database.put_entry("first", "e", at=at(0))
    database.put_entry("second", "e", at=at(1), reason="was interrupted", code="interrupted")
    other = database.put_entry("other", "e", at=at(1))
    put(database, "failed", at(0), Status.FAILED, "timeout")
    moves = len(database.events())
    among = [entry.id for entry in database.entries() if entry.id != other.id]

    database.tell_waiting("waits for room: 3 bytes free", code="no_space", among=among)

    told = [(entry.model, entry.reason, entry.code) for entry in database.entries()]
    assert told == [
        ("failed", "why", "timeout"),
        ("first", "waits for room: 3 bytes free", "no_space"),
        ("other", None, None),
        ("second", "waits for room: 3 bytes free", "no_space"),
    ]
    assert [entry.updated_at for entry in database.entries()] == [at(0), at(0), at(1), at(1)]
    database.tell_waiting(None, code=None, among=among)
    assert [entry.reason for entry in database.entries()] == ["why", None, None, None]
    assert len(database.events()) == moves
