from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from prewarm.errors import LostLease
from prewarm.store.database import Database
from prewarm.store.status import Status

At = Callable[[float], str]

_CLAIMER = """
import sys
from pathlib import Path
from prewarm.store.database import Database
sys.stdin.readline()
with Database(Path(sys.argv[1])) as database:
    while entry := database.claim(
        owner=sys.argv[2], at="2027-01-15T08:00:00.000Z", lease_until="2027-01-15T09:00:00.000Z"
    ):
        print(entry.model, flush=True)
"""


def test_put_entry_adds_once_and_keeps_what_is_there(database: Database, at: At) -> None:
    first = database.put_entry("m", "e", at=at(0))
    assert (first.status, first.attempts, first.own_graph) == (Status.QUEUED, 0, False)
    database.move(first.id, Status.FAILED, at=at(1), reason="why", code="c")
    again = database.put_entry("m", "e", at=at(2), status=Status.SETTLING, reason="other")
    assert (again.id, again.status, again.reason) == (first.id, Status.FAILED, "why")
    assert len(database.events()) == 2
    assert database.put_entry("m", "other", at=at(2)).id != first.id


def test_put_entry_adopts_with_record(database: Database, at: At) -> None:
    entry = database.put_entry(
        "m", "e", at=at(0), status=Status.WARM, record={"status": "warm"}, bundle_sha256="ab"
    )
    assert entry.record == {"status": "warm"}
    assert database.entry("m", "e") == entry


def test_entry_that_is_not_there_is_none(database: Database) -> None:
    assert database.entry("m", "e") is None


def test_entries_are_sorted_by_model_and_environment(database: Database, at: At) -> None:
    for model, environment in (("b", "1"), ("a", "2"), ("a", "1")):
        database.put_entry(model, environment, at=at(0))
    found = [(entry.model, entry.environment_id) for entry in database.entries()]
    assert found == [("a", "1"), ("a", "2"), ("b", "1")]


def test_move_writes_the_given_fields_alone_and_replaces_the_reason(
    database: Database, at: At
) -> None:
    entry = database.put_entry("m", "e", at=at(0), checkpoint_digest="d", attempts=2)
    moved = database.move(
        entry.id,
        Status.FAILED,
        at=at(1),
        reason="why",
        attempts=3,
        next_try_at=at(60),
        own_graph=True,
        record={"a": {"b": [1.5, None, "ü"]}},
    )
    assert moved.attempts == 3
    assert moved.next_try_at == at(60)
    assert moved.checkpoint_digest == "d"
    assert moved.own_graph is True
    assert moved.record == {"a": {"b": [1.5, None, "ü"]}}
    assert moved.updated_at == at(1)
    back = database.move(entry.id, Status.QUEUED, at=at(2), record=None)
    assert (back.reason, back.code, back.record, back.attempts) == (None, None, None, 3)


def test_move_of_an_entry_that_is_not_there_is_lost(database: Database, at: At) -> None:
    with pytest.raises(LostLease, match="entry 7: is not in the database"):
        database.move(7, Status.QUEUED, at=at(0))


def test_wrong_use_is_a_runtime_error(database: Database, at: At) -> None:
    entry = database.put_entry("m", "e", at=at(0))
    with pytest.raises(RuntimeError, match="without a reason"):
        database.move(entry.id, Status.FAILED, at=at(1))
    with pytest.raises(RuntimeError, match="is no time"):
        database.move(entry.id, Status.QUEUED, at="2027-01-15T08:00:00Z")
    with pytest.raises(RuntimeError, match="no columns of an entry: lease_, size"):
        database.move(entry.id, Status.QUEUED, at=at(1), **{"size": 1, "lease_": 2})  # type: ignore[arg-type]


def test_claim_takes_the_oldest_queued_entry_whose_time_has_come(
    database: Database, at: At
) -> None:
    late = database.put_entry("late", "e", at=at(0), next_try_at=at(100))
    second = database.put_entry("second", "e", at=at(2))
    first = database.put_entry("first", "e", at=at(1))
    database.put_entry("failed", "e", at=at(0), status=Status.FAILED, reason="why")
    claimed = [database.claim(owner="w", at=at(10), lease_until=at(20)) for _ in range(3)]
    assert [found and found.id for found in claimed] == [first.id, second.id, None]
    assert claimed[0] is not None
    assert claimed[0].status is Status.BUILDING
    assert (claimed[0].lease_owner, claimed[0].lease_until) == ("w", at(20))
    found = database.claim(owner="w", at=at(100), lease_until=at(200))
    assert found is not None
    assert found.id == late.id


def test_claim_can_be_for_one_model(database: Database, at: At) -> None:
    database.put_entry("a", "e", at=at(0))
    wanted = database.put_entry("b", "e", at=at(1))
    found = database.claim(owner="w", at=at(2), lease_until=at(3), model="b")
    assert found is not None
    assert found.id == wanted.id


def test_two_processes_that_claim_at_once_never_both_get_it(
    database: Database, state_dir: Path, at: At
) -> None:
    with database.transaction():
        for number in range(300):
            database.put_entry(f"m{number}", "e", at=at(0))
    claimers = [
        subprocess.Popen(
            [sys.executable, "-c", _CLAIMER, str(state_dir / "prewarm.db"), f"worker-{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for claimer in claimers:
        assert claimer.stdin is not None
        claimer.stdin.write("go\n")
        claimer.stdin.flush()
    claimed = [claimer.communicate()[0].split() for claimer in claimers]
    assert [claimer.returncode for claimer in claimers] == [0, 0, 0]
    counts = Counter(model for models in claimed for model in models)
    assert len(counts) == 300
    assert set(counts.values()) == {1}
    assert len(database.events(limit=1000)) == 600


def test_only_the_holder_of_the_lease_moves_a_claimed_entry(database: Database, at: At) -> None:
    database.put_entry("m", "e", at=at(0))
    held = database.claim(owner="worker-1", at=at(1), lease_until=at(60))
    assert held is not None
    for lease in (None, "another"):
        with pytest.raises(LostLease, match="since worker-1 holds its lease"):
            database.move(held.id, Status.FAILED, at=at(2), reason="why", lease=lease)
    proving = database.move(held.id, Status.PROVING, at=at(2), lease=held.lease)
    assert proving.lease == held.lease
    warm = database.move(held.id, Status.WARM, at=at(3), lease=held.lease)
    assert (warm.lease, warm.lease_owner, warm.lease_until) == (None, None, None)
    with pytest.raises(LostLease):
        database.move(held.id, Status.STALE, at=at(4), reason="why", lease=held.lease)


def test_renewed_lease_outlives_its_first_end(database: Database, at: At) -> None:
    database.put_entry("m", "e", at=at(0))
    held = database.claim(owner="w", at=at(1), lease_until=at(10))
    assert held is not None
    assert held.lease is not None
    database.renew(held.id, held.lease, until=at(100))
    assert database.release_dead(at(50)) == ()
    [released] = database.release_dead(at(100))
    assert released.id == held.id
    with pytest.raises(LostLease, match="given back"):
        database.renew(held.id, held.lease, until=at(200))
    with pytest.raises(LostLease):
        database.move(held.id, Status.PROVING, at=at(101), lease=held.lease)


def test_claims_follow_the_order_that_is_asked_for_and_take_nothing_else(
    database: Database, at: At
) -> None:
    ids = [database.put_entry(name, "e", at=at(0)).id for name in ("a", "b", "c")]
    wanted = [ids[2], ids[0]]
    claimed = [
        database.claim(owner="w", at=at(1), lease_until=at(60), among=wanted) for _ in range(3)
    ]
    assert [entry.id if entry else None for entry in claimed] == [ids[2], ids[0], None]
    assert database.claim(owner="w", at=at(1), lease_until=at(60), among=[]) is None


def test_whoever_takes_the_lock_queues_everything_again_whatever_its_lease(
    database: Database, at: At
) -> None:
    database.put_entry("a", "e", at=at(0))
    claimed = database.claim(owner="w", at=at(1), lease_until=at(600))
    assert claimed is not None
    assert database.release_dead(at(2)) == ()
    [released] = database.release_all(at(3))
    assert (released.status, released.code) == (Status.QUEUED, "interrupted")


def test_at_a_start_no_build_goes_on_whatever_became_of_its_entry(
    database: Database, at: At
) -> None:
    entry = database.put_entry("m", "e", at=at(0))
    database.start_build(entry.id, "key", at=at(1))
    database.release_dead(at(2))
    assert database.builds(entry.id)[0].outcome is None
    database.release_all(at(3))
    assert database.builds(entry.id)[0].outcome == "interrupted"


def test_entries_are_given_by_their_statuses(database: Database, at: At) -> None:
    for model, status in (("b", Status.WARM), ("a", Status.PARTIAL), ("c", Status.RETIRED)):
        database.put_entry(model, "e", at=at(0), status=status, reason="why")
    found = database.entries_in([Status.WARM, Status.PARTIAL])
    assert [entry.model for entry in found] == ["a", "b"]
    assert database.entries_in([]) == ()
