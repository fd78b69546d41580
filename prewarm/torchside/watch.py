"""The watcher: the one instrument that observes every process that compiles.

It wraps upstream's entry points as their modules are imported (``upstream.POINTS``), listens to
audit events for compilers that are started, and compares the cache directories before and after.
What it sees goes to an event log (``events.py``); ``report.py`` folds the log into a start report.

Rules:
- Nothing of torch is imported here; the import hook waits until somebody else imports it.
- A point that is not there, or whose whole module is not, is recorded as such, so that its field
  becomes ``null``.
- Watching never changes what is computed and never raises into the caller.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time

from . import files, spawned, upstream
from .imports import when_imported
from .points import Point, install, module_is_gone

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType
    from typing import Any

    from .events import EventLog


class Tally:
    """Counts of this process since its start, for differences around a call."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, name: str) -> None:
        """Count one more of ``name``."""
        with self._lock:
            self.counts[name] = self.counts.get(name, 0) + 1

    def get(self, name: str) -> int:
        """Return how often ``name`` was counted."""
        return self.counts.get(name, 0)


class Watcher:
    """Watches this process from ``start`` to ``finish``."""

    def __init__(self, log: EventLog, environ: Mapping[str, str]) -> None:
        self.log = log
        self.tally = Tally()
        self._environ = environ
        self._pid = os.getpid()
        self._before: dict[str, files.Snapshot] = {}
        self._points: dict[str, list[Point]] = {}
        for point in upstream.POINTS:
            self._points.setdefault(point.module, []).append(point)
        self._began = False
        self._finished = False

    def start(self) -> None:
        """Begin to watch; the shim does so when torch is about to be imported.

        Not before, since torch itself starts Python children that never import it (six for the
        instruction-set check of one CPU start).
        """
        if self._began:
            return
        self._begin()
        sys.addaudithook(self._heard)
        when_imported(frozenset(self._points), self._imported)

    def _begin(self) -> None:
        self._began = True
        self.log.write(
            "start",
            argv=[str(word)[:200] for word in getattr(sys, "orig_argv", sys.argv)[:6]],
            python="%d.%d.%d" % sys.version_info[:3],
            uid=os.getuid(),
            rank=self._environ.get("RANK"),
            device_index=self._environ.get("CUDA_VISIBLE_DEVICES"),
        )
        self._before = {
            label: files.snapshot(path)
            for label, path in files.watched_directories(self._environ).items()
        }
        self._tell_gone()
        atexit.register(self.finish)

    def finish(self) -> None:
        """Record the files that changed; once per process, and never in a forked copy of it."""
        if self._finished or not self._began or os.getpid() != self._pid:
            return
        self.look()
        self._finished = True
        self.log.write("finish", dropped=self.log.dropped)

    def look(self) -> None:
        """Record the files that changed up to now."""
        if self._finished:
            return
        found: list[str] = []
        for label, path in files.watched_directories(self._environ).items():
            for name in files.changed(self._before.get(label, {}), files.snapshot(path)):
                found.append(label + ": " + name)
        self.log.write("files", changed=found[:200], count=len(found))

    def call(self, shape_set: str, sizes: Mapping[str, Any]) -> _Call:
        """Return a context that records one declared call.

        Its seconds and the compiled graphs it ran.
        """
        return _Call(self, shape_set, sizes)

    def _imported(self, module: ModuleType) -> None:
        for point in self._points.get(module.__name__, ()):
            try:
                there = install(point, module, self.log, self.tally)
            except Exception as error:
                there = False
                self.log.write("point_failed", point=point.attribute, error=str(error))
            self._tell(point, there)

    def _tell_gone(self) -> None:
        """Tell the points whose module this torch does not have: it will never be imported."""
        for name, points in self._points.items():
            if points and module_is_gone(name):
                for point in points:
                    self._tell(point, there=False)

    def _tell(self, point: Point, there: bool) -> None:
        self.log.write(
            "point",
            module=point.module,
            attribute=point.attribute,
            field=point.field,
            there=there,
        )

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.system"):
            return
        try:
            argv = spawned.argv_of_audit(event, args)
            compiler = spawned.compiler_start(argv) if argv else None
            if compiler:
                self.log.write(
                    "compiler", program=compiler, argv=[word[:200] for word in (argv or [])[:40]]
                )
        except Exception:
            self.log.dropped += 1


class _Call:
    def __init__(self, watcher: Watcher, shape_set: str, sizes: Mapping[str, Any]) -> None:
        self._watcher = watcher
        self._shape_set = shape_set
        self._sizes = sizes
        self.seconds = 0.0
        self.compiled_frames = 0

    def __enter__(self) -> _Call:
        self._runs = self._watcher.tally.get("graph_runs")
        self._started_s = time.perf_counter()
        return self

    def __exit__(self, *error: Any) -> None:
        self.seconds = time.perf_counter() - self._started_s
        self.compiled_frames = self._watcher.tally.get("graph_runs") - self._runs
        self._watcher.log.write(
            "call",
            shape_set=self._shape_set,
            sizes=self._sizes,
            seconds=round(self.seconds, 4),
            compiled_frames=self.compiled_frames,
            failed=error[0] is not None,
        )
