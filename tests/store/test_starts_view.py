from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from prewarm.store import connection, schema
from prewarm.store.database import Database
from prewarm.store.start_summary import NOTHING_KNOWN, StartSummary
from prewarm.store.starts_view import read_starts

At = Callable[[float], str]

SUMMARY = StartSummary({"graphs_compiled": 1}, (), ())


def add(database: Database, at: str, model: str = "m", **others: Any) -> None:
    values = {"bundle_sha256": None, "uid": None, "first_answer_s": None, "compiled": None}
    environment = others.pop("environment_id", "e")
    report: dict[str, Any] = {}
    database.add_report(model, environment, at=at, report=report, **{**values, **others})


def test_the_newest_starts_of_each_entry_with_how_many_there_are(
    database: Database, state_dir: Path, at: At
) -> None:
    for second in range(3):
        add(database, at(second))
    add(database, at(9), "other", compiled=True, uid=7, builder="gpu-1", first_answer_s=1.5,
        bundle_sha256="a" * 64, summary=SUMMARY)  # fmt: skip
    add(database, at(4), environment_id="f", compiled=False)

    found = read_starts(state_dir, each=2)

    assert {key: starts.kept for key, starts in found.items()} == {
        ("m", "e"): 3, ("m", "f"): 1, ("other", "e"): 1,
    }  # fmt: skip
    assert [start.at for start in found["m", "e"].newest] == [at(2), at(1)]
    assert [start.compiled for start in found["m", "f"].newest] == [False]
    [start] = found["other", "e"].newest
    assert (start.uid, start.builder, start.bundle_sha256) == (7, "gpu-1", "a" * 64)
    assert (start.first_answer_s, start.compiled, start.summary) == (1.5, True, SUMMARY)


def test_without_reports_there_are_none(database: Database, state_dir: Path) -> None:
    assert read_starts(state_dir, each=1) == {}


def test_the_summaries_are_read_without_the_reports(
    database: Database, state_dir: Path, at: At
) -> None:
    # What stands before the report in its row needs none of the report's pages.
    with closing(sqlite3.connect(state_dir / "prewarm.db")) as plain:
        columns = [row[1] for row in plain.execute("PRAGMA table_info(reports)")]
    assert columns[-2:] == ["summary", "report"]


def test_reports_from_before_the_summaries_are_kept(
    state_dir: Path, at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = schema.MIGRATIONS[:3]
    with monkeypatch.context() as patched:
        patched.setattr(connection, "MIGRATIONS", former)
        patched.setattr(connection, "SCHEMA_VERSION", len(former))
        with Database(state_dir / "prewarm.db") as database:
            database.execute(
                "INSERT INTO reports (model, environment_id, bundle_sha256, at, uid,"
                " first_answer_s, compiled, report)"
                " VALUES ('m', 'e', 'b', :at, 5, 2.5, 1, '{\"fx_misses\": 1}')",
                {"at": at(0)},
            )
    with Database(state_dir / "prewarm.db") as database:
        [row] = database.reports("m")
        add(database, at(1))
    assert (row.id, row.at, row.uid, row.compiled, row.report) == (
        1, at(0), 5, True, {"fx_misses": 1},
    )  # fmt: skip
    assert (row.builder, row.summary) == (None, NOTHING_KNOWN)
    newest, oldest = read_starts(state_dir, each=5)["m", "e"].newest
    assert (newest.at, oldest.first_answer_s, oldest.summary) == (at(1), 2.5, NOTHING_KNOWN)
