"""Where a process's start report goes: where it is told to, else below its private directory.

Owns ``PREWARM_DIR/reports/<time_ns>-<pid>/``, one directory for each start, and how many are kept.
The directory itself is made with its first event, so a Python that never imports torch leaves none.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import MutableMapping

VARIABLE = "PREWARM_REPORT_DIR"
REPORTS = "reports"

#: Newest starts that are kept, this one included.
KEPT = 20

_START = re.compile(r"[0-9]+-[0-9]+")


def report_directory(environ: MutableMapping[str, str]) -> str | None:
    """Return the directory for this start's events, or None where nothing is to be reported.

    Sets the variable, so that children write beside. Never raises: a place that cannot be written
    is told in one line, once for a process and its children.
    """
    told, private = environ.get(VARIABLE), environ.get("PREWARM_DIR")
    if told is not None or not private:
        return told or None
    reports = os.path.join(private, REPORTS)
    try:
        os.makedirs(reports, exist_ok=True)
        if not os.access(reports, os.W_OK | os.X_OK):
            raise PermissionError(13, "it cannot be written as user %d" % os.geteuid())
        _remove_old(reports)
    except OSError as error:
        environ[VARIABLE] = ""
        sys.stderr.write(
            "prewarm: no start report, so `prewarm drift` will not tell this start: %s: %s\n"
            % (reports, error.strerror)
        )
        return None
    environ[VARIABLE] = os.path.join(reports, "%d-%d" % (time.time_ns(), os.getpid()))
    return environ[VARIABLE]


def _remove_old(reports: str) -> None:
    """Make room for one more start; another that does the same removes the same."""
    starts = [name for name in os.listdir(reports) if _START.fullmatch(name)]
    starts.sort(key=lambda name: int(name.split("-")[0]), reverse=True)
    for name in starts[KEPT - 1 :]:
        shutil.rmtree(os.path.join(reports, name), ignore_errors=True)
