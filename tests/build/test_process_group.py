"""A child's processes hold still together, wherever they went, and go on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prewarm.build.process_group import (
    MARKER,
    _members,
    _state,
    end_group,
    end_strays,
    go_on,
    hold_still,
)

Wait = Callable[[Callable[[], bool]], None]

#: Starts one that stays and one that leaves the group; all count in a file of their own.
CODE = """
import os, subprocess, sys
if len(sys.argv) == 2:
    argv = [sys.executable, __file__, sys.argv[1], "more"]
    for detached in (False, True):
        subprocess.Popen(argv, start_new_session=detached)
file = open(os.path.join(sys.argv[1], str(os.getpid())), "w")
while True:
    print("on", file=file, flush=True)
"""


@pytest.fixture
def group(tmp_path: Path, wait_until: Wait) -> Iterator[tuple[int, Path]]:
    code, counts = tmp_path / "code.py", tmp_path / "counts"
    counts.mkdir()
    code.write_text(CODE)
    child = subprocess.Popen(
        [sys.executable, str(code), str(counts)],
        env={MARKER: str(tmp_path)},
        start_new_session=True,
    )
    wait_until(lambda: len(list(counts.iterdir())) == 3)
    yield child.pid, tmp_path
    end_group(child.pid)
    end_strays(str(tmp_path))
    child.wait()


def test_all_of_them_hold_still_and_go_on(group: tuple[int, Path], wait_until: Wait) -> None:
    pid, directory = group
    hold_still(pid, str(directory))
    members = _members(pid, str(directory))
    assert len(members) == 3
    assert [_state(member) for member in members] == ["T", "T", "T"]
    before = {file: file.stat().st_size for file in (directory / "counts").iterdir()}
    go_on(pid, str(directory))
    wait_until(lambda: all(file.stat().st_size > size for file, size in before.items()))


def test_one_that_holds_still_ends_at_once_when_it_is_told_to(group: tuple[int, Path]) -> None:
    pid, directory = group
    hold_still(pid, str(directory))
    end_group(pid)
    end_strays(str(directory))
    assert {_state(member) for member in _members(pid, str(directory))} <= {"Z", "X"}
