"""The daemon: watches the registry, builds, proves, publishes and serves; start, loop, stop.

Wires the parts and owns their order. Rules:

- READY is told as soon as the state is locked and the server listens; whatever is pending comes
  afterwards.
- Signal handlers only set events. The loop waits on its inbox with a timeout and looks at them.
- An error of a look or of a worker is told and tried again; a thread that died is started anew.
- The end is ordered: no new work, children ended and their entries queued again, server, lock.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from types import FrameType

from prewarm.build.adopt import adopt
from prewarm.build.bench import Bench
from prewarm.build.house import keep_house
from prewarm.build.job_board import JobBoard
from prewarm.build.look import Looker
from prewarm.build.quarantine import mend
from prewarm.build.run import open_run, registry_of
from prewarm.build.step import Step
from prewarm.build.worker import Worker
from prewarm.config import Settings
from prewarm.errors import PrewarmError
from prewarm.log import Level, Log
from prewarm.notify import Notifier
from prewarm.registry.watcher import Changes, Watcher

#: Kinds of device; each has one worker, so that nothing is timed beside something else.
DEVICES = ("cpu", "cuda")
#: The loop wakes this often to tell the watchdog and to look after the threads.
TICK_S = 1.0
#: A full look is made this often, whatever was heard.
RESCAN_S = 60.0
#: House is kept this often.
HOUSE_S = 3600.0
#: After a look that failed the next one waits.
TROUBLE_S = 10.0
#: Children and threads have this long to end; a service manager waits longer.
STOP_S = 8.0


class Daemon:
    """One service on one state directory."""

    def __init__(
        self, settings: Settings, log: Log, notifier: Notifier, *, rescan_s: float = RESCAN_S
    ) -> None:
        self._settings = settings
        self._log = log
        self._notifier = notifier
        self._rescan_s = rescan_s
        self._stop = threading.Event()
        self._reload = threading.Event()
        self._inbox: queue.Queue[Changes] = queue.Queue()
        self._board = JobBoard()
        self._workers: list[Worker] = []
        self._doing: dict[str, str] = {}

    def run(self) -> int:
        """Serve until SIGTERM or SIGINT; return the exit code.

        Raises:
            PrewarmError: the service could not start.
        """
        registry_of(self._settings)
        self._handle_signals()
        with open_run(
            self._settings, what="prewarm serve", report=self._report, stop=self._stop,
            now_s=time.time,
        ) as bench:  # fmt: skip
            try:
                self._start(bench)
                self._loop(bench)
            finally:
                self._end()
        return 0

    # -- start

    def _handle_signals(self) -> None:
        def stop(number: int, frame: FrameType | None) -> None:
            self._stop.set()

        def reload(number: int, frame: FrameType | None) -> None:
            self._reload.set()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGHUP, reload)

    def _start(self, bench: Bench) -> None:
        self._log.event("started", registry=str(self._settings.registry))
        self._notifier.ready("looking through the registry")
        for device in DEVICES:
            self._workers.append(self._new_worker(device, bench))
        self._watching = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._watching.start()

    def _new_worker(self, device: str, bench: Bench) -> Worker:
        worker = Worker(device, bench, self._board, self._trouble)
        worker.start()
        return worker

    def _watch(self) -> None:
        registry = registry_of(self._settings)
        watcher = Watcher(
            registry,
            rescan_s=self._rescan_s,
            settle_s=self._settings.settle_s,
            stop=self._stop,
        )
        for changes in watcher.changes():
            for note in changes.notes:
                self._log.event("watching", detail=note)
            self._inbox.put(changes)

    # -- loop

    def _loop(self, bench: Bench) -> None:
        looker = Looker(bench, self._board)
        self._first(bench)
        look_at_s, house_at_s = None, time.monotonic() + HOUSE_S
        latest: Changes | None = None
        while not self._stop.is_set():
            changes = self._next(latest, look_at_s)
            now_s = time.monotonic()
            if changes is not None:
                latest, look_at_s = changes, None
                if changes.why in ("timer", "start"):
                    looker.forget_environments()
                look_at_s = self._look(looker, changes)
            if self._reload.is_set():
                self._reread()
            if now_s >= house_at_s:
                house_at_s = now_s + HOUSE_S
                self._keep_house(bench)
            self._tend(bench)

    def _first(self, bench: Bench) -> None:
        try:
            adopt(bench)
            mend(bench)
        except PrewarmError as error:
            self._trouble(error)

    def _next(self, latest: Changes | None, look_at_s: float | None) -> Changes | None:
        """Wait a tick for changes; a look that is due again sees the latest ones once more."""
        try:
            changes = self._inbox.get(timeout=TICK_S)
            while not self._inbox.empty():
                changes = self._inbox.get_nowait()
            return changes
        except queue.Empty:
            pass
        due = look_at_s is not None and time.monotonic() >= look_at_s
        return latest if due else None

    def _look(self, looker: Looker, changes: Changes) -> float | None:
        """Look once; return when to look again without news, None for never."""
        try:
            survey = looker.look(changes.presence)
        except PrewarmError as error:
            self._trouble(error)
            return time.monotonic() + TROUBLE_S
        if survey is None:
            self._notifier.status(changes.presence.reason or "the registry is not there")
            return None
        self._say()
        return time.monotonic() + self._settings.settle_s if survey.settling else None

    def _keep_house(self, bench: Bench) -> None:
        try:
            kept = keep_house(bench)
        except PrewarmError as error:
            self._trouble(error)
            return
        if kept.is_news or kept.problem:
            self._log.event(
                "kept house", level="warning" if kept.problem else "info", detail=kept.problem,
                bundles=len(kept.collected.bundles), logs=kept.logs, freed_bytes=kept.freed_bytes,
                evicted=kept.evicted or None, queued=kept.readmitted or None,
            )  # fmt: skip

    def _tend(self, bench: Bench) -> None:
        """Start anew what died, and tell the watchdog that the rest lives."""
        for number, worker in enumerate(self._workers):
            if not worker.is_alive and not self._stop.is_set():
                self._log.event("worker died", level="error", device=worker.device)
                self._workers[number] = self._new_worker(worker.device, bench)
        if not self._watching.is_alive() and not self._stop.is_set():
            self._log.event("watcher died", level="error")
            self._watching = threading.Thread(target=self._watch, name="watcher", daemon=True)
            self._watching.start()
        self._notifier.alive()

    def _reread(self) -> None:
        self._reload.clear()
        self._notifier.reloading()
        self._log.event("reloaded", detail="the registry is looked through anew")
        self._notifier.ready("reloaded")

    # -- telling

    def _report(self, step: Step) -> None:
        if step.outcome is not None:
            level: Level = "info" if step.outcome in ("warm", "partial") else "warning"
            self._log.event(
                step.outcome, level=level, model=step.model, detail=step.detail or None,
                seconds=step.seconds,
            )  # fmt: skip
            self._doing.pop(step.model, None)
            self._say()
        elif step.what == "begin":
            self._log.event("begin", model=step.model)
            self._doing[step.model] = "building"
            self._say()
        else:
            self._log.event(step.what, level="debug", model=step.model, detail=step.detail or None)

    def _say(self) -> None:
        waiting = len(self._board.jobs())
        doing = ", ".join(self._doing) or "idle"
        self._notifier.status(f"{doing}; {waiting} waiting")

    def _trouble(self, error: PrewarmError) -> None:
        self._log.event("trouble", level="error", detail=str(error), code=error.code)
        self._notifier.status(str(error))

    # -- stop

    def _end(self) -> None:
        self._stop.set()
        self._notifier.stopping()
        self._log.event("stopping")
        self._board.ring()
        ends_s = time.monotonic() + STOP_S
        for worker in self._workers:
            worker.join(max(0.1, ends_s - time.monotonic()))
        self._log.event("stopped")
