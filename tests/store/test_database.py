from __future__ import annotations

from collections.abc import Callable

from prewarm.store.builds import INTERRUPTED
from prewarm.store.database import Database
from prewarm.store.status import Status

At = Callable[[float], str]


def _see(database: Database, name: str, at: str) -> None:
    database.see_checkpoint(name, f"/models/{name}", digest="d", architecture="a", at=at)


def test_retire_missing_names_what_is_gone_once(database: Database, at: At) -> None:
    for name in ("a", "b"):
        _see(database, name, at(0))
        database.put_entry(name, "e", at=at(0))
    database.put_entry("never-complete", "", at=at(0), status=Status.FAILED, reason="why")
    assert database.retire_missing(["a"], at=at(1)) == ("b", "never-complete")
    assert database.retire_missing(["a"], at=at(2)) == ()
    entry = database.entry("b", "e")
    assert entry is not None
    assert (entry.status, entry.code) == (Status.RETIRED, "checkpoint_gone")
    assert [found.retired_at for found in database.checkpoints()] == [None, at(1)]


def test_retired_checkpoint_that_is_back_is_seen_again(database: Database, at: At) -> None:
    _see(database, "a", at(0))
    database.retire_missing([], at=at(1))
    _see(database, "a", at(2))
    [found] = database.checkpoints()
    assert (found.first_seen_at, found.seen_at, found.retired_at) == (at(0), at(2), None)


def test_retire_missing_leaves_what_is_under_work(database: Database, at: At) -> None:
    entry = database.put_entry("a", "e", at=at(0))
    database.move(entry.id, Status.PROVING, at=at(1))
    assert database.retire_missing([], at=at(2)) == ()
    found = database.entry("a", "e")
    assert found is not None
    assert found.status is Status.PROVING


def test_release_dead_queues_again_without_counting_an_attempt(database: Database, at: At) -> None:
    scan = database.put_entry("of-a-dead-scan", "e", at=at(0), attempts=1)
    database.move(scan.id, Status.BUILDING, at=at(1))
    build_id = database.start_build(scan.id, "key", at=at(1))
    database.put_entry("over", "e", at=at(2))
    database.claim(owner="w", at=at(3), lease_until=at(10))
    database.put_entry("alive", "e", at=at(4))
    database.claim(owner="w", at=at(5), lease_until=at(1000))
    database.put_entry("resting", "e", at=at(6), status=Status.WARM)

    released = database.release_dead(at(20))

    assert sorted(entry.model for entry in released) == ["of-a-dead-scan", "over"]
    assert {entry.model: entry.status for entry in database.entries()} == {
        "of-a-dead-scan": Status.QUEUED,
        "over": Status.QUEUED,
        "alive": Status.BUILDING,
        "resting": Status.WARM,
    }
    found = database.entry("of-a-dead-scan", "e")
    assert found is not None
    assert (found.attempts, found.code, found.lease) == (1, "interrupted", None)
    [build] = database.builds(scan.id)
    assert (build.id, build.outcome, build.ended_at) == (build_id, INTERRUPTED, at(20))
    assert database.release_dead(at(21)) == ()
