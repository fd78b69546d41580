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
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

from prewarm.build.bench import Bench
from prewarm.build.cgroup import open_cgroups
from prewarm.build.crew import Crew
from prewarm.build.house import keep_house
from prewarm.build.job_board import JobBoard
from prewarm.build.lock import SERVICE
from prewarm.build.look import Looker
from prewarm.build.run import open_run, registry_of
from prewarm.build.step import Step
from prewarm.config import Settings
from prewarm.errors import PrewarmError
from prewarm.log import Log
from prewarm.narrator import Narrator
from prewarm.notify import Notifier
from prewarm.registry.watcher import Changes, Watcher
from prewarm.serve.front_door import open_server
from prewarm.serve.metrics import Metrics
from prewarm.serve.server import Server
from prewarm.store.database import DATABASE_NAME
from prewarm.store.doorbell import Bell, Doorbell
from prewarm.store.root_seen import read_root_seen

#: The loop wakes this often to tell the watchdog and to look after the threads.
TICK_S = 1.0
#: A full look is made this often, whatever was heard.
RESCAN_S = 60.0
#: House is kept this often, and at the start.
HOUSE_S = 3600.0
#: After a look that failed the next one waits.
TROUBLE_S = 10.0
#: Settings that name places or sockets, or make threads, which a running service cannot change.
FIXED = (
    "registry", "cache_dir", "state_dir", "builder", "signing_key", "socket", "listen",
    "token_file", "cpu_workers",
)  # fmt: skip
#: Children and threads have this long to end; a service manager waits longer.
STOP_S = 8.0


class Daemon:
    """One service on one state directory."""

    def __init__(
        self,
        settings: Settings,
        log: Log,
        notifier: Notifier,
        *,
        reread: Callable[[], Settings],
        rescan_s: float = RESCAN_S,
    ) -> None:
        self._settings = settings
        self._reread_settings = reread
        self._log = log
        self._notifier = notifier
        self._rescan_s = rescan_s
        self._stop = threading.Event()
        self._reload = threading.Event()
        self._inbox: queue.Queue[Changes] = queue.Queue()
        self._board = JobBoard()
        self._crew: Crew | None = None
        self._narrator = Narrator(log, notifier, self._board)
        self._asked = threading.Event()
        self._doorbell = Doorbell(settings.state_dir)
        self._looked = threading.Event()
        self._metrics = Metrics(settings.state_dir / DATABASE_NAME)
        self._server: Server | None = None
        self._watcher: Watcher | None = None

    def run(self) -> int:
        """Serve until SIGTERM or SIGINT; return the exit code.

        Raises:
            PrewarmError: the service could not start.
        """
        registry_of(self._settings)
        self._handle_signals()
        with open_run(
            self._settings, what=SERVICE, report=self._report, stop=self._stop, now_s=time.time,
            alive=self._notifier.alive,
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
        self._server = self._open_server()
        self._log.event("started", registry=str(self._settings.registry))
        self._notifier.ready("looking through the registry")
        self._crew = self._new_crew(bench)
        self._crew.start()
        self._watching = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._watching.start()

    def _open_server(self) -> Server:
        server = open_server(
            self._settings,
            self._metrics,
            wake=self._asked.set,
            ready=self._looked.is_set,
            tell=lambda line: self._log.event("http", detail=line),
        )
        server.start()
        return server

    def _new_crew(self, bench: Bench) -> Crew:
        kept = open_cgroups()
        crew = Crew(bench, self._board, self._narrator.trouble, cgroups=kept.cgroups)
        self._log.event(
            "devices", devices=[device.name for device in crew.devices.devices],
            cpu_workers=bench.settings.cpu_workers, children=kept.told, detail=crew.devices.note,
        )  # fmt: skip
        return crew

    def _watch(self) -> None:
        self._watcher = Watcher(
            registry_of(self._settings),
            rescan_s=self._rescan_s,
            settle_s=self._settings.settle_s,
            stop=self._stop,
            remembered=read_root_seen(self._settings.state_dir),
        )
        for changes in self._watcher.changes():
            for note in changes.notes:
                self._log.event("watching", detail=note)
            self._inbox.put(changes)

    # -- loop

    def _loop(self, bench: Bench) -> None:
        looker = Looker(bench, self._board)
        look_at_s, house_at_s = None, time.monotonic()
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
                bench = self._reread(bench)
                looker = Looker(bench, self._board)
                look_at_s = 0.0
            if self._doorbell.answer(Bell.HOUSE) or now_s >= house_at_s:
                house_at_s = now_s + HOUSE_S
                self._keep_house(bench)
            self._tend()

    def _next(self, latest: Changes | None, look_at_s: float | None) -> Changes | None:
        """Wait a tick for changes; a look that is due again sees the latest ones once more.

        So does one for a deployment that waits, since its entry goes first, and for `retry`.
        """
        try:
            changes = self._inbox.get(timeout=TICK_S)
            while not self._inbox.empty():
                changes = self._inbox.get_nowait()
            return changes
        except queue.Empty:
            pass
        due = look_at_s is not None and time.monotonic() >= look_at_s
        if self._doorbell.answer(Bell.LOOK) or self._asked.is_set():
            self._asked.clear()
            due = True
        return latest if due else None

    def _look(self, looker: Looker, changes: Changes) -> float | None:
        """Look once; return when to look again without news, None for the watcher to say."""
        started_s = time.monotonic()
        try:
            survey = looker.look(changes.presence)
        except (PrewarmError, OSError) as error:
            self._narrator.trouble(error)
            return time.monotonic() + TROUBLE_S
        if survey is None:
            self._notifier.status(changes.presence.reason or "the registry is not there")
            return None
        if self._watcher is not None:
            self._watcher.note_look(time.monotonic() - started_s)
        self._looked.set()
        self._metrics.scan_ended()
        self._narrator.standing()
        return time.monotonic() + looker.again_in_s(survey)

    def _keep_house(self, bench: Bench) -> None:
        try:
            kept = keep_house(bench)
        except (PrewarmError, OSError) as error:
            self._narrator.trouble(error)
            return
        if kept.readmitted:
            self._asked.set()
        if kept.is_news or kept.problem:
            self._log.event(
                "kept house", level="warning" if kept.problem else "info", detail=kept.problem,
                bundles=len(kept.collected.bundles), logs=kept.logs, freed_bytes=kept.freed_bytes,
                evicted=kept.evicted or None, queued=kept.readmitted or None,
            )  # fmt: skip

    def _tend(self) -> None:
        """Start anew what died, and tell the watchdog that the rest lives."""
        if self._crew is not None and not self._stop.is_set():
            for name in self._crew.tend():
                self._log.event("worker died", level="error", worker=name)
        if not self._watching.is_alive() and not self._stop.is_set():
            self._log.event("watcher died", level="error")
            self._watching = threading.Thread(target=self._watch, name="watcher", daemon=True)
            self._watching.start()
        if self._server is not None and not self._server.alive and not self._stop.is_set():
            self._log.event("http died", level="error")
            self._server.stop(0.0)
            self._server = self._open_server()
        self._notifier.alive()

    def _reread(self, bench: Bench) -> Bench:
        """Read the configuration again; what names places holds from the next start on."""
        self._reload.clear()
        self._notifier.reloading()
        try:
            read = self._reread_settings()
        except PrewarmError as error:
            self._narrator.trouble(error)
        else:
            kept = {name: getattr(self._settings, name) for name in FIXED}
            later = [name for name, value in kept.items() if getattr(read, name) != value]
            note = f"{', '.join(later)} need a restart" if later else None
            self._settings = replace(read, **kept)
            bench = replace(bench, settings=self._settings)
            if self._crew is not None:
                self._crew.take(self._settings)
            self._log.event("reloaded", detail=note)
        self._notifier.ready("reloaded")
        return bench

    def _report(self, step: Step) -> None:
        self._narrator.step(step)
        if step.outcome is not None and self._server is not None:
            self._server.changed()

    # -- stop

    def _end(self) -> None:
        self._stop.set()
        self._notifier.stopping()
        self._log.event("stopping")
        self._board.ring()
        if self._crew is not None:
            self._crew.join(STOP_S)
        if self._server is not None:
            self._server.stop(1.0)
        self._log.event("stopped")
