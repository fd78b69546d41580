"""Where a start's events go, how many starts are kept, and that no server falls over it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from prewarm.store.torchside_copy import copy_torchside
from prewarm.torchside.report_place import KEPT, VARIABLE, report_directory


def test_nothing_is_reported_without_a_place() -> None:
    environ: dict[str, str] = {}
    assert report_directory(environ) is None
    assert environ == {}


def test_a_named_place_is_taken_as_it_is(tmp_path: Path) -> None:
    environ = {VARIABLE: "/told", "PREWARM_DIR": str(tmp_path)}
    assert report_directory(environ) == "/told"
    assert list(tmp_path.iterdir()) == []


def test_a_private_directory_has_one_for_each_start_and_children_write_beside(
    tmp_path: Path,
) -> None:
    environ = {"PREWARM_DIR": str(tmp_path)}
    told = report_directory(environ)
    assert told is not None
    assert Path(told).parent == tmp_path / "reports"
    assert Path(told).name.endswith(f"-{os.getpid()}")
    assert report_directory(environ) == told, "a child has the same environment"
    assert list((tmp_path / "reports").iterdir()) == [], "made with the first event"


def test_the_newest_starts_are_kept_with_this_one_and_what_is_no_start_stays(
    tmp_path: Path,
) -> None:
    reports = tmp_path / "reports"
    # By time, not by name: 9 is older than 10.
    for number in range(1, KEPT + 5):
        (reports / f"{number}-1").mkdir(parents=True)
        (reports / f"{number}-1" / "1.jsonl").touch()
    (reports / "notes").mkdir()
    report_directory({"PREWARM_DIR": str(tmp_path)})
    kept = {f"{number}-1" for number in range(6, KEPT + 5)}
    assert len(kept) == KEPT - 1
    assert {path.name for path in reports.iterdir()} == kept | {"notes"}


def test_a_place_that_cannot_be_made_is_told_once_and_keeps_no_server_from_starting(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    copy_torchside(tmp_path / "copy")
    (tmp_path / "torch.py").touch()
    child = "import torch, subprocess, sys; subprocess.run([sys.executable, '-c', 'import torch'])"
    done = subprocess.run(
        [sys.executable, "-c", child],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path / "copy"), str(tmp_path)]),
            "PREWARM_DIR": str(tmp_path / "file"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    told = [line for line in done.stderr.splitlines() if "no start report" in line]
    assert len(told) == 1, done.stderr
    assert str(tmp_path / "file" / "reports") in told[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_place_that_cannot_be_written_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "reports").mkdir(mode=0o500)
    environ = {"PREWARM_DIR": str(tmp_path)}
    assert report_directory(environ) is None
    assert environ[VARIABLE] == ""
    assert "cannot be written" in capsys.readouterr().err
