from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable

import pytest

from prewarm.errors import LostLease
from prewarm.store.database import Database
from prewarm.store.schema import MIGRATIONS
from prewarm.store.status import MOVES, NEEDS_REASON, Status

At = Callable[[float], str]


def _words(check: str) -> list[str]:
    [found] = re.findall(check, "".join(MIGRATIONS), flags=re.DOTALL)
    return re.findall(r"'(\w+)'", found)


def test_enum_equals_schema_check() -> None:
    assert _words(r"CHECK \(status IN \((.*?)\)\)") == [status.value for status in Status]


def test_statuses_without_reason_equal_schema_check() -> None:
    without = _words(r"CHECK \(reason IS NOT NULL OR status IN \((.*?)\)\)")
    assert set(without) == set(Status) - NEEDS_REASON


@pytest.mark.parametrize("status", list(Status))
def test_schema_takes_every_status(database: Database, at: At, status: Status) -> None:
    entry = database.put_entry("m", "e", at=at(0), status=status, reason="why")
    assert entry.status is status


def test_schema_refuses_a_word_that_is_no_status(database: Database, at: At) -> None:
    database.put_entry("m", "e", at=at(0))
    with pytest.raises(RuntimeError, match="CHECK"):
        database.execute("UPDATE entries SET status = 'done'")


@pytest.mark.parametrize("present", list(Status))
@pytest.mark.parametrize("to", list(Status))
def test_moves_of_the_database_are_those_of_the_table(
    database: Database, at: At, present: Status, to: Status
) -> None:
    entry = database.put_entry("m", "e", at=at(0), status=present, reason="before")
    if to in MOVES[present]:
        moved = database.move(entry.id, to, at=at(1), reason="after", code="c")
        assert (moved.status, moved.reason, moved.code) == (to, "after", "c")
        assert database.entry("m", "e") == moved
        event = database.events()[0]
        assert (event.from_status, event.to_status) == (present, to)
        assert (event.at, event.reason, event.code) == (at(1), "after", "c")
    else:
        with pytest.raises(LostLease, match=f"m: is {present} by now and cannot become {to}"):
            database.move(entry.id, to, at=at(1), reason="after")
        assert database.entry("m", "e") == entry
        assert len(database.events()) == 1


def test_every_write_of_a_status_by_anybody_leaves_an_event(
    database: Database, at: At, state_dir: object
) -> None:
    database.put_entry("m", "e", at=at(0))
    with sqlite3.connect(f"{state_dir}/prewarm.db") as plain:
        plain.execute("UPDATE entries SET status = 'warm'")
    plain.close()
    assert [event.to_status for event in database.events()] == [Status.WARM, Status.QUEUED]
