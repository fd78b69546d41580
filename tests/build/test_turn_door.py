"""A child's processes take the turn together, and give it back however they end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prewarm.build.turn_door import VARIABLE, open_door
from prewarm.build.turns import Member, Turns

Wait = Callable[[Callable[[], bool]], None]

#: Times something, and so does the process that it waits for meanwhile.
CODE = """
import subprocess, sys
from prewarm.torchside.turn import Alone
with Alone():
    print("alone", flush=True)
    if len(sys.argv) < 2:
        subprocess.run([sys.executable, __file__, "more"], check=True)
    sys.stdin.read()
"""


class Table:
    """A member with a door, and another member beside it."""

    def __init__(self) -> None:
        self.turns, self.stop = Turns(), threading.Event()
        self.told: list[str] = []
        self.member = Member()
        self.other = Member(
            hold_still=lambda: self.told.append("still"), go_on=lambda: self.told.append("on")
        )
        for member in (self.member, self.other):
            self.turns.join(member, lambda: None, self.stop)


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def door(table: Table) -> Iterator[dict[str, str]]:
    with open_door(table.turns, table.member, table.stop) as variables:
        yield variables


def child(code: Path, variables: dict[str, str]) -> subprocess.Popen[str]:
    code.write_text(CODE)
    return subprocess.Popen(
        [sys.executable, str(code)],
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_processes_of_one_child_time_within_each_other(
    table: Table, door: dict[str, str], tmp_path: Path, wait_until: Wait
) -> None:
    with child(tmp_path / "code.py", door) as timing:
        assert timing.stdout is not None
        assert [timing.stdout.readline() for _ in range(2)] == ["alone\n", "alone\n"]
        assert table.told == ["still"]
        timing.communicate("")
    assert timing.returncode == 0
    wait_until(lambda: table.told == ["still", "on"])


def test_the_death_of_who_has_the_turn_gives_it_back(
    table: Table, door: dict[str, str], tmp_path: Path, wait_until: Wait
) -> None:
    with child(tmp_path / "code.py", door) as timing:
        assert timing.stdout is not None
        timing.stdout.readline()
        timing.kill()
    wait_until(lambda: table.told[-1:] == ["on"])


def test_who_waits_at_a_door_that_closes_goes_on_without(
    table: Table, tmp_path: Path, wait_until: Wait
) -> None:
    with table.turns.held(table.stop):
        with open_door(table.turns, table.member, table.stop) as variables:
            timing = child(tmp_path / "code.py", variables)
            wait_until(lambda: len(table.turns._line) == 1)
        with timing:
            assert timing.stdout is not None
            assert timing.stdout.readline() == "alone\n"
            timing.communicate("")


def test_without_a_builder_nothing_happens(tmp_path: Path) -> None:
    for variables in ({}, {VARIABLE: "prewarm-turn-of-nobody"}):
        with child(tmp_path / "code.py", variables) as timing:
            assert timing.communicate("")[0] == "alone\nalone\n"
        assert timing.returncode == 0


def test_others_find_the_door_shut_to_them(
    table: Table, door: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prewarm.build.turn_door._user_of", lambda caller: os.geteuid() + 1)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(10)
        stranger.connect("\0" + door[VARIABLE])
        assert stranger.recv(1) == b""
    assert table.told == []
