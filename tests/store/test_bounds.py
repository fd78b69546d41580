"""History stays within its bounds: events, builds, reports and what is retired."""

from __future__ import annotations

import re
from collections.abc import Callable

from prewarm.store import builds, events
from prewarm.store.database import Database
from prewarm.store.schema import MIGRATIONS
from prewarm.store.status import Status

At = Callable[[float], str]


def flip(database: Database, at: At, entry_id: int, times: int, start: int = 1) -> None:
    """Write two events so many times."""
    for second in range(start, start + 2 * times, 2):
        database.move(entry_id, Status.SETTLING, at=at(second), reason="written")
        database.move(entry_id, Status.QUEUED, at=at(second + 1))


# -- events


def test_of_an_entry_only_the_last_moves_are_kept(database: Database, at: At) -> None:
    other = database.put_entry("other", "e", at=at(0))
    entry = database.put_entry("m", "e", at=at(0))
    flip(database, at, entry.id, 100)
    kept = database.events("m", limit=1_000)
    assert len(kept) == events.MOST_OF_AN_ENTRY
    assert [kept[0].at, kept[-1].at] == [at(200), at(151)]
    assert [event.entry_id for event in database.events("other")] == [other.id]


def test_the_trigger_keeps_as_many_as_the_module_says() -> None:
    assert re.findall(r"OFFSET (\d+)", "".join(MIGRATIONS)) == [str(events.MOST_OF_AN_ENTRY)]


def test_the_last_failure_stays_however_much_happens(database: Database, at: At) -> None:
    entry = database.put_entry("m", "e", at=at(0))
    for second, code in ((1, "killed"), (2, "timeout")):
        database.move(entry.id, Status.FAILED, at=at(second), reason="why", code=code)
    database.move(entry.id, Status.QUEUED, at=at(3))
    flip(database, at, entry.id, 100, start=4)
    assert database.last_failure_code(entry.id) == "timeout"
    failed = [one for one in database.events("m", limit=1_000) if one.to_status is Status.FAILED]
    assert [event.code for event in failed] == ["timeout"]
    database.forget_events(before=at(10_000))
    assert database.last_failure_code(entry.id) == "timeout"


def test_old_events_go_and_so_do_the_oldest_over_the_number(database: Database, at: At) -> None:
    for number in range(10):
        database.put_entry(f"m{number}", "e", at=at(number))
    assert database.forget_events(before=at(3)) == 3
    assert database.forget_events(before=at(0), most=4) == 3
    assert [event.model for event in database.events()] == ["m9", "m8", "m7", "m6"]
    assert database.forget_events(before=at(0), most=4) == 0


# -- builds


def test_of_an_entry_only_the_last_builds_are_kept_and_all_are_counted(
    database: Database, at: At
) -> None:
    entry = database.put_entry("m", "e", at=at(0))
    running = database.start_build(entry.id, "k", at=at(0))
    for second in range(50):
        build_id = database.start_build(entry.id, "k", at=at(second))
        database.end_build(build_id, "failed" if second % 2 else "compiled", at=at(second))
    kept = database.builds(entry.id)
    # One that runs stays beside them.
    assert (kept[0].id, len(kept)) == (running, builds.MOST_OF_AN_ENTRY + 1)
    assert kept[-1].started_at == at(49)
    assert database.totals(at(0)).builds == {"compiled": 25, "failed": 25}


def test_old_builds_go_and_so_do_the_oldest_over_the_number(database: Database, at: At) -> None:
    for model in ("a", "b"):
        entry = database.put_entry(model, "e", at=at(0))
        for second in range(4):
            build_id = database.start_build(entry.id, "k", at=at(second))
            database.end_build(build_id, "compiled", at=at(second))
    running = database.start_build(entry.id, "k", at=at(0))
    assert database.forget_builds(before=at(1)) == 2
    assert database.forget_builds(before=at(0), most=3) == 3
    assert database.forget_builds(before=at(1_000), most=1) == 2
    first, second = (database.entry(model, "e") for model in ("a", "b"))
    assert first is not None and second is not None
    # Each entry's last one, whatever its age, and what runs.
    assert [build.started_at for build in database.builds(first.id)] == [at(3)]
    assert [build.id for build in database.builds(second.id)] == [running]
    assert database.totals(at(0)).builds == {"compiled": 8}


# -- start reports


def test_old_start_reports_go(database: Database, at: At) -> None:
    for second in range(4):
        database.add_report(
            "m", "e", bundle_sha256=None, at=at(second), uid=None, first_answer_s=None,
            compiled=None, report={},
        )  # fmt: skip
    assert database.forget_reports(before=at(3)) == 3
    assert [report.at for report in database.reports("m")] == [at(3)]


# -- what was set aside


def test_what_was_set_aside_long_ago_and_over_the_number_is_forgotten(
    database: Database, at: At
) -> None:
    for number in range(7):
        database.add_bundle(
            f"{number}", build_key="k", architecture="a", environment_id="e", size_bytes=1,
            unpacked_bytes=1, files=1, record=None, at=at(0),
        )  # fmt: skip
        if number:
            database.quarantine(f"{number}", reason="damaged", at=at(number))
    database.put_entry("m", "e", at=at(0), bundle_sha256="1")
    assert database.forget_quarantined(before=at(3)) == 1  # the first one is still named
    assert database.forget_quarantined(before=at(0), most=2) == 2
    left = [bundle.sha256 for bundle in database.quarantined_bundles()]
    assert left == ["1", "5", "6"]
    assert [bundle.sha256 for bundle in database.bundles_for_key("k")] == ["0"]


# -- what is retired


def test_what_was_retired_long_ago_and_over_the_number_is_forgotten(
    database: Database, at: At
) -> None:
    for number in range(6):
        name = f"m{number}"
        database.see_checkpoint(name, "/", digest=None, architecture=None, at=at(0))
        entry = database.put_entry(name, "e", at=at(0))
        database.end_build(database.start_build(entry.id, "k", at=at(0)), "compiled", at=at(0))
    for number in range(5):
        database.retire_missing([f"m{late}" for late in range(number + 1, 6)], at=at(number + 1))
    assert database.forget_retired(before=at(2), most=100) == 1
    assert [row.name for row in database.checkpoints()] == ["m1", "m2", "m3", "m4", "m5"]
    assert database.forget_retired(before=at(0), most=2) == 2
    left = ["m3", "m4", "m5"]
    assert [row.name for row in database.checkpoints()] == left
    assert [entry.model for entry in database.entries()] == left
    assert {event.model for event in database.events()} == set(left)
    assert [len(database.builds(entry.id)) for entry in database.entries()] == [1, 1, 1]
    assert database.totals(at(0)).builds == {"compiled": 6}


def test_one_environment_of_a_checkpoint_may_be_forgotten_alone(database: Database, at: At) -> None:
    database.see_checkpoint("m", "/", digest=None, architecture=None, at=at(0))
    database.put_entry("m", "old", at=at(0), status=Status.RETIRED, reason="gone")
    database.put_entry("m", "new", at=at(0))
    assert database.forget_retired(before=at(1), most=100) == 1
    assert [entry.environment_id for entry in database.entries()] == ["new"]
    assert [row.name for row in database.checkpoints()] == ["m"]


def test_one_that_comes_back_begins_anew(database: Database, at: At) -> None:
    database.put_entry("m", "e", at=at(0))
    database.retire_missing([], at=at(1))
    database.forget_retired(before=at(2), most=0)
    assert database.put_entry("m", "e", at=at(3)).status is Status.QUEUED
