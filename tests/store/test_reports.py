from __future__ import annotations

from collections.abc import Callable

import pytest

from prewarm.store import reports
from prewarm.store.database import Database
from prewarm.store.start_summary import StartSummary

At = Callable[[float], str]


def _add(database: Database, at: str, model: str = "m", **others: object) -> None:
    values = {
        "bundle_sha256": None, "uid": None, "first_answer_s": None, "compiled": None, "report": {},
    }  # fmt: skip
    database.add_report(model, "e", at=at, **{**values, **others})  # type: ignore[arg-type]


@pytest.mark.parametrize("compiled", [True, False, None])
def test_a_report_is_given_back_as_it_was_added(
    database: Database, at: At, compiled: bool | None
) -> None:
    added = database.add_report(
        "m",
        "e",
        bundle_sha256="a" * 64,
        at=at(0),
        uid=65534,
        first_answer_s=1.5,
        compiled=compiled,
        report={"fx_misses": None, "calls": [{"sizes": {"ü": 1}}]},
        builder="gpu-1",
        summary=StartSummary({"fx_misses": 1}, (), ()),
    )
    [found] = database.reports("m")
    assert found == added
    assert (found.model, found.environment_id, found.at, found.uid) == ("m", "e", at(0), 65534)
    assert (found.bundle_sha256, found.first_answer_s) == ("a" * 64, 1.5)
    assert found.compiled is compiled
    assert (found.builder, found.summary.counts) == ("gpu-1", {"fx_misses": 1})
    assert found.report == {"fx_misses": None, "calls": [{"sizes": {"ü": 1}}]}


def test_the_newest_of_a_model_are_kept(
    database: Database, at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "MOST_OF_A_MODEL", 2)
    _add(database, at(0), "other")
    for second in (1, 2, 3):
        _add(database, at(second))
    assert [found.at for found in database.reports("m")] == [at(3), at(2)]
    assert [found.at for found in database.reports("other")] == [at(0)]


def test_the_newest_of_all_are_kept(
    database: Database, at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "MOST_REPORTS", 3)
    for second, model in enumerate("abcd"):
        _add(database, at(second), model)
    assert [len(database.reports(model)) for model in "abcd"] == [0, 1, 1, 1]


def test_reports_are_newest_first_and_limited(database: Database, at: At) -> None:
    for second in (0, 1, 2):
        _add(database, at(second))
    assert [found.at for found in database.reports("m", limit=2)] == [at(2), at(1)]


def test_a_later_report_of_a_start_takes_the_place_of_the_former(database: Database) -> None:
    def add(model: str = "m", uid: int | None = 1, instead_of: int | None = None) -> int:
        return database.add_report(
            model, "e", bundle_sha256=None, at="2026-11-30T00:00:00.000Z", uid=uid,
            first_answer_s=None, compiled=None, report={}, instead_of=instead_of,
        ).id  # fmt: skip

    first = add()
    second = add(instead_of=first)
    assert [row.id for row in database.reports("m")] == [second]
    add(uid=2, instead_of=second)
    add(model="n", instead_of=second)
    assert second in [row.id for row in database.reports("m")], "another's stays"
