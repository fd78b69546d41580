"""Scratch is new for each run; what a dead run left there is ended and removed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from prewarm.build.child import MARKER
from prewarm.build.workspace import Workspace
from prewarm.errors import NotWritable
from prewarm.store.logs import KEPT


def test_open_gives_a_copy_that_everybody_reads(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        copy = Workspace(tmp_path).open()
    finally:
        os.umask(before)
    assert (copy / "sitecustomize.py").is_file()
    assert (copy / "prewarm_torchside" / "__main__.py").is_file()
    modes = {path.stat().st_mode & 0o777 for path in (copy, *copy.rglob("*"))}
    assert modes == {0o644, 0o755}


def test_open_removes_what_a_dead_run_left_and_ends_its_children(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.open()
    left = workspace.root / "build-dead"
    left.mkdir()
    (left / "artifact").touch()
    with subprocess.Popen(
        [sys.executable, "-S", "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, MARKER: str(left)},
        start_new_session=True,
    ) as stray:
        assert stray.stdout is not None
        stray.stdout.readline()
        workspace.open()
        assert stray.wait(timeout=30) == -9
    assert not left.exists()
    assert [path.name for path in tmp_path.iterdir() if "dead" in path.name] == []


def test_open_removes_what_a_run_left_that_was_killed_while_it_cleared(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.open()
    workspace.root.rename(tmp_path / "work-dead-1")
    workspace.open()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "work"]


def test_other_processes_are_left_alone(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "mine")
    workspace.open()
    with subprocess.Popen(
        [sys.executable, "-S", "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, MARKER: str(tmp_path / "other" / "work" / "build-x")},
    ) as neighbour:
        assert neighbour.stdout is not None
        neighbour.stdout.readline()
        workspace.open()
        assert neighbour.poll() is None
        neighbour.communicate(b"\n", timeout=30)
        assert neighbour.returncode == 0


def test_a_directory_is_gone_afterwards_whatever_happened(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.open()
    with pytest.raises(ValueError, match="in the middle"), workspace.directory("build") as path:
        (path / "deep" / "er").mkdir(parents=True)
        raise ValueError("in the middle")
    assert not path.exists()
    with workspace.directory("build") as again:
        assert again != path
        assert again.stat().st_mode & 0o777 == 0o755


def test_a_directory_that_could_not_be_opened_to_others_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(tmp_path)
    workspace.open()

    def refuse(path: Path, mode: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(NotWritable), workspace.directory("build"):
        pytest.fail("it was handed out")
    assert not list(workspace.root.glob("build-*"))


def test_a_new_log_takes_the_oldest_of_its_entry_away(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.open()
    other = workspace.new_log("m", "f" * 16, "2027-01-15T08:00:00.000Z")
    other.touch()
    made = []
    for second in range(KEPT + 2):
        made.append(workspace.new_log("m", "e" * 16, f"2027-01-15T08:00:0{second}.000Z"))
        made[-1].touch()
    assert set(workspace.logs.iterdir()) == {other, *made[-KEPT:]}


def test_a_state_dir_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(NotWritable, match="state"):
        Workspace(tmp_path / "state").open()
