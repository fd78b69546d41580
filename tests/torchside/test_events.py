"""Events survive whatever ends the process that wrote them."""

from __future__ import annotations

import os
from pathlib import Path

from prewarm.torchside.events import EventLog, read_events


def test_events_come_back_in_order_of_time(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path))
    log.write("first", value=1)
    log.write("second", value=Path("x"))
    assert [event["event"] for event in read_events(str(tmp_path))] == ["first", "second"]


def test_a_cut_line_is_passed_over(tmp_path: Path) -> None:
    EventLog(str(tmp_path)).write("whole")
    with (tmp_path / f"{os.getpid()}.jsonl").open("a") as file:
        file.write('{"event": "cu')
    assert [event["event"] for event in read_events(str(tmp_path))] == ["whole"]


def test_a_record_that_cannot_be_written_is_counted(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    log = EventLog(str(tmp_path / "file" / "below"))
    log.write("lost")
    assert log.dropped == 1


def test_no_directory_is_no_events(tmp_path: Path) -> None:
    assert read_events(str(tmp_path / "nowhere")) == []
