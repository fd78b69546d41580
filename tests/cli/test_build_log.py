"""Logs of builds as they are shown: their end, and what comes while they are followed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prewarm.cli import again
from prewarm.cli.build_log import LOG_LINES, FollowedLogs, log_end
from prewarm.store.database import Database
from prewarm.store.status import Status

Prewarm = Callable[..., tuple[int, str, str]]
AT = "2027-01-15T08:00:00.000Z"


def entry(
    log: Path | None, status: str = "building", model: str = "m", reason: str | None = None
) -> dict[str, Any]:
    told = None if log is None else str(log)
    return {"model": model, "environment": "e", "status": status, "reason": reason, "log": told}


def add(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


def test_the_end_of_a_log_is_shown_under_its_title(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    title, *lines = log_end(entry(log)).splitlines()
    assert title == f"== m (building): {log}"
    assert lines == [f"line {number}" for number in range(100 - LOG_LINES, 100)]


def test_what_is_not_there_is_told_by_the_status(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert log_end(entry(None, "queued")) == "== m (queued): no build has run"
    assert log_end(entry(log)) == f"== m (building): {log} has nothing yet"
    told = log_end(entry(log, "failed"))
    assert told == f"== m (failed): {log} cannot be read (No such file or directory)"
    assert log_end(entry(tmp_path)).endswith("cannot be read (Is a directory)")


def test_what_is_written_since_is_told_in_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    logs = FollowedLogs([entry(log)])
    assert list(logs.news([entry(log)])) == []
    add(log, "one\ntwo\nhal")
    assert list(logs.news([entry(log)])) == [f"== m (building): {log}\n", "one\ntwo\n"]
    add(log, "f\n")
    assert list(logs.news([entry(log)])) == ["half\n"]


def test_a_move_and_the_log_of_the_next_build_are_told(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("before\n")
    logs = FollowedLogs([entry(first)])
    moved = entry(first, "failed", reason="it ended")
    assert list(logs.news([moved])) == ["== m (failed): it ended\n"]
    assert list(logs.news([entry(second)])) == ["== m (building)\n"]
    second.write_text("from its first line\n")
    assert list(logs.news([entry(second)]))[1] == "from its first line\n"


def test_whose_lines_they_are_is_told_where_that_changes(tmp_path: Path) -> None:
    logs = {name: tmp_path / name for name in ("a", "b")}
    both = [entry(log, model=name) for name, log in logs.items()]
    followed = FollowedLogs(both)
    told = []
    for name in ("a", "a", "b", "a"):
        add(logs[name], f"of {name}\n")
        told += [text.split(":")[0] for text in followed.news(both)]
    assert told == [
        "== a (building)", "of a\n", "of a\n", "== b (building)", "of b\n",
        "== a (building)", "of a\n",
    ]  # fmt: skip


def test_a_log_that_lost_its_middle_is_told_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("long " * 1000 + "\n")
    logs = FollowedLogs([entry(log)])
    log.write_text("begin\n== 5,000 bytes are left out here ==\nend\n")
    _, text = logs.news([entry(log)])
    assert text.splitlines()[-1] == "end"
    add(log, "more\n")
    assert list(logs.news([entry(log)])) == ["more\n"]


# -- through the command


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What happens before each later look of ``--watch``; then it is interrupted."""
    waiting: list[Callable[[], object]] = []

    def pause(_: float) -> None:
        if not waiting:
            raise KeyboardInterrupt
        waiting.pop(0)()

    monkeypatch.setattr(again.time, "sleep", pause)
    return waiting


def test_status_follows_the_log_until_it_is_interrupted(
    database: Database, prewarm: Prewarm, state_dir: Path, tmp_path: Path,
    looks: list[Callable[[], object]],
) -> None:  # fmt: skip
    log = tmp_path / "log"
    log.write_text("before\n")
    made = database.put_entry("m", "e", at=AT, log=str(log))
    looks += [
        lambda: add(log, "later\n"),
        lambda: database.move(made.id, Status.FAILED, at=AT, reason="why"),
    ]
    code, out, _ = prewarm("status", "m", "--log", "--watch", "--state-dir", state_dir)
    assert code == 130
    assert out.split(str(log), 1)[1] == (
        f"\nbefore\n== m (queued): {log}\nlater\n== m (failed): why\n"
    )


def test_without_logs_the_listing_is_told_again_where_something_changed(
    database: Database, prewarm: Prewarm, state_dir: Path, looks: list[Callable[[], object]]
) -> None:
    made = database.put_entry("m", "e", at=AT)

    def fail() -> None:
        database.move(made.id, Status.FAILED, at=AT, reason="why")

    looks += [lambda: None, fail, lambda: None]
    _, out, _ = prewarm("status", "--watch", "--state-dir", state_dir)
    assert out.count("model") == 2
    assert "queued" in out.split("model")[1] and "failed" in out.split("model")[2]
    looks += [lambda: None, lambda: database.move(made.id, Status.QUEUED, at=AT)]
    _, out, _ = prewarm("status", "--watch", "--json", "--state-dir", state_dir)
    first, second = (json.loads(line) for line in out.splitlines() if line.startswith('{"entries'))
    assert [one["entries"][0]["status"] for one in (first, second)] == ["failed", "queued"]
