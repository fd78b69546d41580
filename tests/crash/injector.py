"""Faults at system calls, by a library that is loaded in front of libc.

Owns building ``faults.cpp`` and the control file through which a test arms it in processes that run
already. SQLite and CPython both call libc for their files, so one library reaches both.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import shutil
import subprocess
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("faults.cpp")

MAIN, PACK, CHILD = 1, 2, 4


class Action(IntEnum):
    """What happens at the call that is hit."""

    KILL_BEFORE = 0
    KILL_AFTER = 1
    KILL_TORN = 2
    """Half of what was to be written is, then kill -9; for other calls as ``KILL_AFTER``."""
    FAIL = 3
    CUT_BEFORE = 4
    """As ``KILL_BEFORE``, and all that was not synced is lost."""
    CUT_AFTER = 5


CUTS = frozenset({Action.CUT_BEFORE, Action.CUT_AFTER})


@dataclass(frozen=True, slots=True)
class Fault:
    """Which call is hit: the one after ``skip`` that match; ``times`` in a row for an error."""

    action: Action
    op: str = ""
    path: str = ""
    skip: int = 0
    error: int = 0
    times: int = 1
    roles: int = MAIN

    def __str__(self) -> str:
        who = {MAIN: "prewarm", PACK: "pack", CHILD: "child"}.get(self.roles, "any")
        what = self.action.name.lower()
        if self.action is Action.FAIL:
            what = f"{errno.errorcode[self.error]} x{self.times}"
        return f"{what} at {who}'s {self.op or 'call'} {self.path or 'anywhere'} +{self.skip}"


class _Control(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in (
            "mode", "action", "error", "left", "times", "fired", "seen", "roles", "pid", "track",
        )),
        ("root", ctypes.c_char * 256),
        ("op", ctypes.c_char * 16),
        ("path", ctypes.c_char * 256),
        ("saved", ctypes.c_char * 256),
        ("trace", ctypes.c_char * 256),
        ("told", ctypes.c_char * 512),
    ]  # fmt: skip


class Injector:
    """The control file of one place; processes with its ``variables`` obey it."""

    def __init__(self, library: Path, root: Path, beside: Path) -> None:
        beside.mkdir()
        self._file = beside / "control"
        self._file.write_bytes(bytes(ctypes.sizeof(_Control)))
        with self._file.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), ctypes.sizeof(_Control))
        self._control = _Control.from_buffer(self._map)
        self._trace = beside / "trace"
        (beside / "saved").mkdir()
        self._control.root = os.fsencode(root)
        self._control.saved = os.fsencode(beside / "saved")
        self._control.trace = os.fsencode(self._trace)
        self.variables = {"LD_PRELOAD": str(library), "PREWARM_FAULTS": str(self._file)}

    def arm(self, fault: Fault) -> None:
        """Let a fault happen."""
        control = self._control
        control.mode = 0
        control.action, control.error = int(fault.action), fault.error
        control.left, control.times, control.roles = fault.skip, fault.times, fault.roles
        control.op, control.path = fault.op.encode(), fault.path.encode()
        control.fired = control.seen = control.pid = 0
        control.told = b""
        control.track = int(fault.action in CUTS)
        control.mode = 2

    def disarm(self) -> None:
        """Let nothing happen any more."""
        self._control.mode = 0

    def trace(self) -> None:
        """Write down every call instead of hitting one."""
        self._trace.write_bytes(b"")
        self._control.op = self._control.path = b""
        self._control.track, self._control.roles = 0, MAIN | PACK | CHILD
        self._control.mode = 1

    def traced(self) -> list[tuple[int, str, str]]:
        """Return the calls that were written down: role, operation, path."""
        lines = (line.split(" ", 2) for line in self._trace.read_text().splitlines())
        return [(int(role), op, path) for role, op, path in lines]

    @property
    def fired(self) -> int:
        """How many calls were hit."""
        return int(self._control.fired)

    @property
    def exhausted(self) -> bool:
        """Whether all that was armed has happened."""
        return self.fired > 0 and self._control.times <= 0

    @property
    def seen(self) -> int:
        """How many calls matched since it was armed."""
        return int(self._control.seen)

    @property
    def told(self) -> str:
        """What was hit last: role, operation, path."""
        return bytes(self._control.told).decode("utf-8", "replace")


def build_library(into: Path) -> Path:
    """Compile the library, or skip where that is not possible."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler here to build the fault injector with")
    library = into / "faults.so"
    argv = [compiler, "-std=c++17", "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    done = subprocess.run([*argv, "-ldl", "-lpthread"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return library
