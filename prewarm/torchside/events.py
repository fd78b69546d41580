"""The watcher's record: one JSON line per event, appended as it happens, one file per process.

Appending at once (instead of writing a report at exit) keeps what a process did even if it is
killed, calls ``os._exit`` or forks: a start report is folded from these lines afterwards
(``report.py``).

The file is ``<PREWARM_REPORT_DIR>/<pid>.jsonl``. A record that cannot be written is dropped, and
the count of dropped records is kept, so that the report says "cannot tell" instead of 0.
"""

from __future__ import annotations

import json
import os
import threading
import time

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class EventLog:
    """Appends events of this process, and of processes forked from it, to files in one directory.

    ``listener`` is told the name of each event that was written.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.dropped = 0
        self.listener: Callable[[str], None] | None = None
        self._descriptor: int | None = None
        self._pid: int | None = None
        self._lock = threading.RLock()

    def write(self, event: str, **fields: Any) -> None:
        """Append one event; never raises, since it runs inside other people's calls."""
        record = {"event": event, "pid": os.getpid(), "at_s": round(time.time(), 6)}
        record.update(fields)
        try:
            line = json.dumps(record, default=str) + "\n"
            with self._lock:
                os.write(self._open(), line.encode("utf-8", "replace"))
            if self.listener is not None:
                self.listener(event)
        except Exception:
            self.dropped += 1

    def hint(self, event: str) -> None:
        """Tell the listener of something that is no event of the record."""
        if self.listener is not None:
            self.listener(event)

    def _open(self) -> int:
        if self._descriptor is None or self._pid != os.getpid():
            os.makedirs(self.directory, exist_ok=True)
            path = os.path.join(self.directory, "%d.jsonl" % os.getpid())
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
            self._descriptor = os.open(path, flags, 0o644)
            self._pid = os.getpid()
        return self._descriptor


def read_events(directory: str) -> list[dict[str, Any]]:
    """Return every event of a report directory in order of time.

    A line cut by a crash is skipped.
    """
    events: list[dict[str, Any]] = []
    if not os.path.isdir(directory):
        return events
    for name in sorted(os.listdir(directory)):
        if not name.endswith(".jsonl"):
            continue
        with open(os.path.join(directory, name), encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    event = json.loads(line)
                except ValueError:
                    continue
                if isinstance(event, dict) and "event" in event:
                    events.append(event)
    events.sort(key=lambda event: event.get("at_s", 0))
    return events
