"""What `prewarm status` tells of the last starts, and of calls that nobody declared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prewarm.build.verdict import ZEROS
from prewarm.cli.starts import _WORDS
from prewarm.store.database import Database
from prewarm.store.start_summary import StartSummary
from prewarm.store.status import Status
from prewarm.store.timestamp import epoch_seconds, timestamp

Prewarm = Callable[..., tuple[int, str, str]]

AT = "2027-01-15T08:00:00.000Z"
DECLARED = {
    "compile": {"targets": ["."]},
    "shapes": [
        {
            "name": "chat",
            "call": ".",
            "inputs": {"x": {"dtype": "float32", "shape": ["batch", 64]}},
            "sizes": [{"batch": 8}],
        }
    ],
}
RECORD: dict[str, Any] = {
    "requires": [], "covers": "any order", "bundle": None, "compile": {}, "shape_sets": [],
    "proof": {"declared": DECLARED},
}  # fmt: skip


def graphs(*batches: int) -> tuple[Any, ...]:
    return tuple(({"name": "x", "dtype": "float32", "shape": [one, 64]},) for one in batches)


def report(database: Database, second: int = 0, **others: Any) -> None:
    values: dict[str, Any] = {
        "bundle_sha256": "ab" * 32, "uid": 1000, "first_answer_s": 2.13, "compiled": False,
        "builder": "gpu-1",
    }  # fmt: skip
    at = timestamp(epoch_seconds(AT) + second)
    database.add_report("m/1", "e", at=at, report={}, **{**values, **others})


def compiled(database: Database, second: int, *batches: int, **counts: int) -> None:
    summary = StartSummary(counts or {"graphs_compiled": 1}, (), graphs(*batches))
    report(database, second, compiled=True, summary=summary)


@pytest.fixture
def entry(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setattr("prewarm.cli.status.time.time", lambda: epoch_seconds(AT) + 300)
    database.put_entry("m/1", "e", at=AT, status=Status.WARM, record=RECORD)
    database.put_entry("n/1", "e", at=AT)
    return database


def test_every_count_that_must_be_zero_has_words() -> None:
    assert _WORDS.keys() == {name for name, _, _ in ZEROS}


def test_the_table_shows_the_last_start(entry: Database, prewarm: Prewarm, state_dir: Path) -> None:
    compiled(entry, 0)
    report(entry, 60)

    _, out, _ = prewarm("status", "--state-dir", state_dir)

    title, one, other = out.splitlines()
    assert "  last start" in title
    place = title.index("last start")
    assert one[place:] == "4 min ago, warm, 2.1 s"
    assert other[place:] == ""
    assert "starts" not in out


def test_a_model_s_starts_are_told_one_by_one(
    entry: Database, prewarm: Prewarm, state_dir: Path
) -> None:
    report(entry, 0, bundle_sha256=None, builder=None, uid=None, first_answer_s=None, compiled=None,
           summary=StartSummary({}, ("fx_misses",), ()))  # fmt: skip
    compiled(entry, 1, fx_misses=1, graphs_compiled=2, compilers_started=3)
    report(entry, 2)

    _, out, _ = prewarm("status", "m/1", "--state-dir", state_dir)

    assert out.splitlines()[2:] == [
        "m/1: starts",
        "  2027-01-15T08:00:02.000Z, bundle abababababab of gpu-1, first answer after 2.1 s, "
        "user 1000, compiled nothing",
        "  2027-01-15T08:00:01.000Z, bundle abababababab of gpu-1, first answer after 2.1 s, "
        "user 1000, 2 graphs compiled, 3 compilers started, 1 FX miss",
        "  2027-01-15T08:00:00.000Z, no bundle, cannot tell: fx_misses",
    ]


def test_of_many_starts_the_last_ten_are_told(
    entry: Database, prewarm: Prewarm, state_dir: Path
) -> None:
    for second in range(12):
        report(entry, second)

    _, out, _ = prewarm("status", "m/1", "--state-dir", state_dir)
    _, told, _ = prewarm("status", "--state-dir", state_dir, "--json")

    assert "m/1: starts, the last 10 of 12" in out
    assert out.count("compiled nothing") == 10
    known, unknown = json.loads(told)["entries"]
    assert (known["starts_kept"], len(known["starts"])) == (12, 10)
    assert (unknown["starts_kept"], unknown["starts"], unknown["missing"]) == (0, [], [])


def test_a_model_without_starts_says_so(entry: Database, prewarm: Prewarm, state_dir: Path) -> None:
    _, out, _ = prewarm("status", "n/1", "--state-dir", state_dir)
    assert out.splitlines()[-1] == "n/1: no start was reported"


def test_what_deployments_keep_compiling_is_named_with_the_lines_to_add(
    entry: Database, prewarm: Prewarm, state_dir: Path
) -> None:
    compiled(entry, 0, 3)
    report(entry, 1)
    compiled(entry, 2, 3, 5)

    _, table, _ = prewarm("status", "--state-dir", state_dir)
    _, out, _ = prewarm("status", "m/1", "--state-dir", state_dir)
    _, told, _ = prewarm("status", "--state-dir", state_dir, "--json")

    assert (
        "a start compiled chat with batch = 3; batch = 5, not declared (see `prewarm status MODEL`)"
    ) in table
    toml = [
        "[[shapes]]",
        'name = "chat-2"',
        'inputs.x = { dtype = "float32", shape = ["batch", 64] }',
        "sizes = [{ batch = 3 }, { batch = 5 }]",
    ]
    assert out.splitlines()[-5:] == [
        "  compiled by 2 of 3 starts and not declared: chat with batch = 3; batch = 5; add to "
        "prewarm.toml:",
        *(f"    {line}" for line in toml),
    ]
    assert json.loads(told)["entries"][0]["missing"] == [
        {
            "shape_set": "chat",
            "sizes": [{"batch": 3}, {"batch": 5}],
            "starts": 2,
            "toml": "\n".join(toml),
        }
    ]


def test_what_is_declared_and_compiled_all_the_same_is_not_missing(
    entry: Database, prewarm: Prewarm, state_dir: Path
) -> None:
    compiled(entry, 0, 8)

    _, out, _ = prewarm("status", "m/1", "--state-dir", state_dir)

    assert "1 graph compiled" in out
    assert "not declared" not in out


def test_json_has_stable_fields_for_a_start(
    entry: Database, prewarm: Prewarm, state_dir: Path
) -> None:
    compiled(entry, 0)

    _, told, _ = prewarm("status", "m/1", "--state-dir", state_dir, "--json")

    assert json.loads(told)["entries"][0]["starts"] == [
        {
            "at": AT,
            "uid": 1000,
            "builder": "gpu-1",
            "bundle": "ab" * 32,
            "first_answer_s": 2.13,
            "compiled": True,
            "counts": {"graphs_compiled": 1},
            "cannot_tell": [],
        }
    ]
