from __future__ import annotations

from collections.abc import Callable

from prewarm.store.database import Database
from prewarm.store.status import Status

At = Callable[[float], str]


def test_an_empty_database_counts_nothing_under_every_status(database: Database, at: At) -> None:
    totals = database.totals(at(0))
    assert totals.entries == dict.fromkeys(Status, 0)
    assert (totals.builds, totals.bundles, totals.bundle_bytes, totals.requests) == ({}, 0, 0, 0)


def test_totals_count_what_is_there(database: Database, at: At) -> None:
    for model, status, sha256 in (
        ("a", Status.WARM, "a" * 64),
        ("b", Status.PARTIAL, "a" * 64),  # shares the bundle
        ("c", Status.STALE, "c" * 64),
        ("d", Status.QUEUED, None),
    ):
        entry = database.put_entry(
            model, "e", at=at(0), status=status, reason="why", bundle_sha256=sha256
        )
    for digit, size_bytes in (("a", 10), ("c", 100)):
        database.add_bundle(
            digit * 64, build_key=digit, architecture="x", environment_id="e",
            size_bytes=size_bytes, unpacked_bytes=1, files=1, record=None, at=at(0),
        )  # fmt: skip
    for outcome in ("warm", "warm", "failed"):
        database.end_build(database.start_build(entry.id, "k", at=at(0)), outcome, at=at(1))
    database.start_build(entry.id, "k", at=at(0))  # still runs
    database.put_request("d", None, at=at(0), until=at(60))
    totals = database.totals(at(1))
    assert {status: n for status, n in totals.entries.items() if n} == {
        Status.WARM: 1,
        Status.PARTIAL: 1,
        Status.STALE: 1,
        Status.QUEUED: 1,
    }
    assert totals.builds == {"warm": 2, "failed": 1}
    assert (totals.bundles, totals.bundle_bytes) == (1, 10)
    assert totals.requests == 1
    assert database.totals(at(60)).requests == 0
