"""Ending a child with everybody it started, whether they stayed in its process group or left it.

Owns the variable by which those who left are found. Starting children is ``child.py``'s.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import psutil

#: Variable that every child and whatever it starts carries: the work directory of its run.
MARKER = "PREWARM_WORKDIR"
#: How often a running child is looked at.
POLL_S = 0.05
#: A child is told to end (SIGTERM), then ended (SIGKILL) after this time.
TERM_GRACE_S = 2.0


def end_group(group: int) -> None:
    """End a process group: SIGTERM, then SIGKILL for whoever is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        ends_s = time.monotonic() + TERM_GRACE_S
        while time.monotonic() < ends_s and _group_lives(group):
            time.sleep(POLL_S)
        os.killpg(group, signal.SIGKILL)


def end_strays(directory: str) -> None:
    """End processes that left their group but still carry a variable naming ``directory``."""
    marker = f"{MARKER}={directory}".encode()
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            variables = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            if process.pid != os.getpid() and any(v.startswith(marker) for v in variables):
                process.kill()


def _group_lives(group: int) -> bool:
    """Tell whether a process of the group still runs.

    One that only waits to be reaped does not count.
    """
    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(psutil.Error, ProcessLookupError, OSError):
            if process.info["status"] != psutil.STATUS_ZOMBIE and os.getpgid(process.pid) == group:
                return True
    return False
