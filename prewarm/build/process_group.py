"""A child with everybody it started, in its process group or gone from it: ending, holding still.

Owns the variable by which those who left are found. Starting children is ``child.py``'s; where the
kernel gives a cgroup for each child, ``cgroup.py`` does the same without looking for anybody.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

#: Variable that every child and whatever it starts carries: the work directory of its run.
MARKER = "PREWARM_WORKDIR"
#: How often a running child is looked at.
POLL_S = 0.05
#: A child is told to end (SIGTERM), then ended (SIGKILL) after this time.
TERM_GRACE_S = 2.0
#: Whoever does not hold still by then waits in the kernel, for a disk, and does nothing either.
STILL_S = 2.0


def end_group(group: int) -> None:
    """End a process group: SIGTERM, then SIGKILL for whoever is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        os.killpg(group, signal.SIGCONT)
        ends_s = time.monotonic() + TERM_GRACE_S
        while time.monotonic() < ends_s and _group_lives(group):
            time.sleep(POLL_S)
        os.killpg(group, signal.SIGKILL)


def end_strays(directory: str) -> None:
    """End processes that left their group but still carry a variable naming ``directory``."""
    for pid in _marked(directory):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def hold_still(group: int, directory: str) -> None:
    """Stop a process group and whoever left it; return once all of them hold still."""
    ends_s = time.monotonic() + STILL_S
    while True:
        _signal(group, directory, signal.SIGSTOP)
        # Whoever was started between the two looks is found by the next.
        moving = [pid for pid in _members(group, directory) if _state(pid) not in "TtZX"]
        if not moving or time.monotonic() > ends_s:
            return


def go_on(group: int, directory: str) -> None:
    """Let a process group and whoever left it go on."""
    _signal(group, directory, signal.SIGCONT)


def _signal(group: int, directory: str, number: signal.Signals) -> None:
    for pid in _members(group, directory):
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def _members(group: int, directory: str) -> set[int]:
    found = set(_marked(directory))
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if os.getpgid(pid) == group:
                found.add(pid)
    return found


def _marked(directory: str) -> Iterator[int]:
    marker = f"{MARKER}={directory}".encode()
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if pid != os.getpid() and any(v.startswith(marker) for v in variables):
                yield pid


def _state(pid: int) -> str:
    """Return the letter of a process's state; X for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "X"


def _group_lives(group: int) -> bool:
    """Tell whether a process of the group still runs.

    One that only waits to be reaped does not count.
    """
    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(psutil.Error, ProcessLookupError, OSError):
            if process.info["status"] != psutil.STATUS_ZOMBIE and os.getpgid(process.pid) == group:
                return True
    return False
