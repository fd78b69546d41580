"""Telling the builder of this start: the start report, sent once the declared calls have passed.

Owns when it is sent, that a start is told once however many processes it has, and what is noted
beside the events: ``told`` holds to whom and what came of it. What is compiled later, such as the
first request of a size that nobody declared, is told in place of the first report. Nothing of it
delays or disturbs the server: a daemon thread waits and sends, and at the end of the process there
is half a second for what was not sent yet. What could not be sent stays on disk.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .deployment import Deployment
    from .events import EventLog

#: After the declared calls a start is watched for so long without news, in seconds.
QUIET_S = 2.0

#: A start of which less than the declared calls came by then is told as it is, once nothing is
#: being compiled.
LATEST_S = 60.0

#: After a late compile, so that a burst of new sizes is told at once; and how often at most.
LATE_QUIET_S, MOST_LATE = 30.0, 5

#: For the whole of one sending, and for that of a process that ends.
SEND_S, END_S = 10.0, 0.5

TOLD = "told"

#: Events that say that something is compiled, found or run: news.
_NEWS = frozenset(
    ["frame_begins", "frame", "graph", "graph_done", "graph_compiled", "ran", "fx_lookup",
     "aot_lookup", "compiler"]
)  # fmt: skip

#: What is under way between two events.
_RUNNING = {"frame_begins": 1, "frame": -1, "graph": 1, "graph_done": -1}


class Telling:
    """Waits for the declared calls of a deployment and tells its builder of the start."""

    def __init__(
        self,
        deployment: Deployment,
        log: EventLog,
        look: Callable[[], None],
        *,
        quiet_s: float = QUIET_S,
        latest_s: float = LATEST_S,
        late_quiet_s: float = LATE_QUIET_S,
    ) -> None:
        """``look`` writes what changed on disk into the log, before it is read."""
        self._deployment = deployment
        self._log = log
        self._look = look
        self._quiet_s = quiet_s
        self._latest_s = latest_s
        self._late_quiet_s = late_quiet_s
        self._lock = threading.Lock()
        self._forget()

    def start(self) -> None:
        """Begin to listen to the log; call it before what else is to happen at exit."""
        self._log.listener = self._heard
        atexit.register(self._at_exit)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Begin anew: a forked copy has no thread, and its calls are its own."""
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._graphs = 0
        self._running = 0
        self._last_s = time.monotonic()
        self._thread: threading.Thread | None = None
        self._ids: list[int | None] = []
        self._late = False
        self._news = threading.Event()
        self._end = threading.Event()

    def _heard(self, event: str) -> None:
        if event not in _NEWS:
            return
        with self._lock:
            self._last_s = time.monotonic()
            self._running += _RUNNING.get(event, 0)
            self._graphs += event == "graph_done"
            if event == "ran" and self._thread is None:
                self._thread = threading.Thread(target=self._wait, name="prewarm", daemon=True)
                self._thread.start()
        if event == "graph_compiled":
            self._late = True
            self._news.set()

    def _wait(self) -> None:
        ends_s = time.monotonic() + self._latest_s
        while not self._is_over(self._quiet_s, self._graphs_wanted(ends_s)):
            self._end.wait(min(0.25, self._quiet_s))
        self._tell()
        for _ in range(MOST_LATE if self._ids else 0):
            if self._end.is_set():
                return
            self._news.wait()
            while self._late and not self._is_over(self._late_quiet_s, 0):
                self._end.wait(min(1.0, self._late_quiet_s))
            if self._late:
                self._tell()

    def _graphs_wanted(self, ends_s: float) -> int:
        return self._deployment.graphs if time.monotonic() < ends_s else 0

    def _is_over(self, quiet_s: float, graphs: int) -> bool:
        if self._end.is_set():
            return True
        with self._lock:
            quiet = time.monotonic() - self._last_s >= quiet_s
            return quiet and self._running <= 0 and self._graphs >= graphs

    def _at_exit(self) -> None:
        if os.getpid() != self._pid or self._thread is None:
            return
        # The thread that waits: no other can be started now, and a name server may not answer.
        self._end.set()
        self._news.set()
        self._thread.join(END_S)

    def _tell(self) -> None:
        """Send the report of this start, once or in place of the former; never raises."""
        limit_s = END_S if self._end.is_set() else SEND_S
        to = self._deployment.reports.get("to")
        try:
            if not isinstance(to, str) or not (self._ids or self._claim()):
                return
            self._late = False
            self._news.clear()
            self._look()
            from .sending import send_reports

            self._ids = send_reports(
                self._deployment, self._log.directory, to, limit_s=limit_s, instead_of=self._ids
            )
            self._note({"to": to, "at_s": round(time.time(), 3), "ids": self._ids})
        except Exception as error:
            if not self._ids:
                self._give_up()
            sys.stderr.write("prewarm: the start report was not sent to %s: %s\n" % (to, error))

    def _claim(self) -> bool:
        """Take this start's one telling; a process that ends beside ours may have it."""
        try:
            os.makedirs(self._log.directory, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(os.path.join(self._log.directory, TOLD), flags, 0o644))
        except FileExistsError:
            return False
        return True

    def _note(self, found: dict[str, Any]) -> None:
        with open(os.path.join(self._log.directory, TOLD), "w", encoding="utf-8") as file:
            json.dump(found, file)

    def _give_up(self) -> None:
        try:
            os.unlink(os.path.join(self._log.directory, TOLD))
        except OSError:
            return
