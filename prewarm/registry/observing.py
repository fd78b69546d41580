"""The life of the observer of one tree: begun by the method that works, mended, and ended.

Owns when to fall back to polling, when to try inotify again, and the pause before an observer that
died is begun again. Yields nothing: the watcher does.
"""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path
from typing import Literal

from prewarm.registry.heard import Heard
from prewarm.registry.observers import InotifyWatch, Noted, PollingWatch
from prewarm.registry.watch_method import (
    POLL_S,
    WatchMethod,
    choose_method,
    count_directories,
    exhausted,
    refused,
    watch_limit,
)

#: Seconds before an observer that died again is begun again, doubled each time up to the second.
RESTART_S, LONGEST_RESTART_S = 1.0, 60.0

#: What the kernel answers where inotify is not to be had; anything else concerns the root itself.
_REFUSALS = (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSYS, errno.EPERM)

Mended = Literal["overflow", "observer died", "method"]


class Observing:
    """One tree's observer. ``notes`` are lines for the log, to be taken away by the watcher."""

    def __init__(self, *, poll: bool = False, poll_s: float = POLL_S) -> None:
        self._asked = WatchMethod("polling", "asked for") if poll else None
        self._poll_s = poll_s
        self._root: Path | None = None
        self._observer: InotifyWatch | PollingWatch | None = None
        self._heard = Heard()
        self._restart_s = 0.0
        self._restart_at_s = 0.0
        self._limit: int | None = None
        self.notes: list[str] = []
        self.method: WatchMethod | None = None

    def begin(self, root: Path, method: WatchMethod | None = None) -> None:
        """Begin to observe a real directory; one that has just vanished is left for ``mend``."""
        self._root = root
        self._heard = Heard()
        self._limit = watch_limit()
        wanted = method or self._asked or choose_method(root)
        try:
            wanted = self._start(root, wanted)
        except OSError as error:
            self.notes.append(f"{root} cannot be watched ({error.strerror}); it is tried again")
            return
        self._tell(root, wanted)
        self.method = wanted

    def end(self) -> None:
        """Stop observing; return when the threads have ended."""
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.stop()
            with contextlib.suppress(RuntimeError):  # it was never started
                observer.join()

    def take(self) -> tuple[set[str], float]:
        """Return where something happened since the last time, and when it last did."""
        return self._heard.take()

    def mend(self, now_s: float) -> Mended | None:
        """Put right what the threads told, or what is seen of them; return what it was."""
        fault = self._heard.take_fault()
        if self._root is None:
            return None
        if self._observer is None:
            return self._begin_again(now_s)
        if fault == "died" or not self._observer.is_whole():
            self.end()
            self._restart_at_s = now_s + self._restart_s
            when = f"in {self._restart_s:g} s" if self._restart_s else "now"
            self.notes.append(f"watching {self._root} ended by itself; it begins again {when}")
            self._restart_s = min(max(RESTART_S, 2 * self._restart_s), LONGEST_RESTART_S)
            self._begin_again(now_s)
            return "observer died"
        if fault == "exhausted":
            self.end()
            self.begin(self._root, exhausted(count_directories(self._root), watch_limit()))
            return "method"
        if fault == "overflow":
            self.notes.append("inotify lost events (its queue overflowed): looking at everything")
            return "overflow"
        return None

    def look_after(self) -> None:
        """Note that it lived for a while; leave polling once the limit that forced it is raised."""
        if self._observer is not None:
            self._restart_s = 0.0
        method = self.method
        if self._root is None or self._asked or method is None or method.next_step is None:
            return
        # Trying while the limit is as it was would take the watches that other programs need.
        raised = method.limit is None or watch_limit() != self._limit
        if raised and choose_method(self._root).kind == "inotify":
            self.end()
            self.begin(self._root)

    def _begin_again(self, now_s: float) -> Mended | None:
        if self._root is None or now_s < self._restart_at_s:
            return None
        self.begin(self._root)
        if self._observer is None:
            self._restart_at_s = now_s + RESTART_S
            return None
        return "observer died"

    def _start(self, root: Path, wanted: WatchMethod) -> WatchMethod:
        """Start the observer; return the method that it came to."""
        if wanted.kind == "inotify":
            try:
                self._run(InotifyWatch(root, self._noted(), self._heard.fault))
            except OSError as error:
                if error.errno not in _REFUSALS:
                    raise
                wanted = refused(error.errno)
            else:
                if self._heard.take_fault() != "exhausted":
                    return wanted
                self.end()
                wanted = exhausted(wanted.directories, watch_limit())
            self._heard = Heard()
        self._run(PollingWatch(root, self._noted(), every_s=self._poll_s))
        return wanted

    def _run(self, observer: InotifyWatch | PollingWatch) -> None:
        try:
            observer.start()
        except BaseException:
            observer.stop()
            raise
        self._observer = observer

    def _noted(self) -> Noted:
        return Noted(self._heard.note, self._heard.fault)

    def _tell(self, root: Path, method: WatchMethod) -> None:
        """Say the method once, and again when it or its reason becomes another."""
        before = self.method
        if before is not None and (before.kind, before.why) == (method.kind, method.why):
            return
        every = f" every {self._poll_s:g} s" if method.kind == "polling" else ""
        step = f"; {method.next_step}" if method.next_step else ""
        self.notes.append(f"watching {root} by {method.kind}{every}: {method.why}{step}")
