"""watchdog's two observers, by inotify and by polling, with what they pass over in silence told.

Owns the list of events that are heard, and the three faults that must be noticed: a queue that
overflowed, watches that ran out, and a thread that died. Rules:

- ``opened`` and ``closed_no_write`` are not asked for: reading a file must not look like a change.
- Writing is heard in pieces of ``PAUSE_S``: the kernel and we drop what repeats meanwhile.
- What is told is a word for the watcher; nothing here looks at the disk to decide anything.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers.api import BaseObserver
from watchdog.observers.inotify import InotifyEmitter
from watchdog.observers.inotify_c import (
    CallbackId,
    InotifyConstants,
    InotifyEvent,
    InotifyFD,
    Mask,
    WatchCallback,
    WatchDescriptor,
)
from watchdog.observers.polling import PollingEmitter

from prewarm.registry.heard import Fault

#: Seconds between two reads of events, so that a file that grows is one event, not thousands.
PAUSE_S = 0.05

_HEARD = Mask(
    InotifyConstants.IN_CREATE
    | InotifyConstants.IN_DELETE
    | InotifyConstants.IN_DELETE_SELF
    | InotifyConstants.IN_MOVED_FROM
    | InotifyConstants.IN_MOVED_TO
    | InotifyConstants.IN_MODIFY
    | InotifyConstants.IN_ATTRIB
    | InotifyConstants.IN_CLOSE_WRITE
    | InotifyConstants.IN_ONLYDIR
)


class Noted(FileSystemEventHandler):
    """A handler that hands on where something happened, and never raises.

    An exception would end watchdog's thread, and with it the watching (watchdog #793).
    """

    def __init__(self, note: Callable[[Iterable[str]], None], fault: Callable[[Fault], None]):
        self._note = note
        self._fault = fault

    def dispatch(self, event: FileSystemEvent) -> None:
        """Take an event of any kind."""
        try:
            places = (event.src_path, event.dest_path)
            self._note(place for place in map(_text, places) if place)
        except Exception:
            self._fault("died")


class NoticingFD(InotifyFD):
    """The descriptor of the events, whose thread tells what it meets."""

    def __init__(self, fault: Callable[[Fault], None]) -> None:
        super().__init__()
        self._fault = fault
        self.name = "prewarm-inotify"

    def run(self) -> None:
        """Read events until stopped; tell if that ends otherwise."""
        try:
            super().run()
        except Exception:
            with self._lock:  # whoever stops it closes what is open, and waits for nobody
                self._watch_for_wd.clear()
                self._is_reading = False
            self._fault("died")

    def read_events(self, **kwargs: int) -> list[InotifyEvent]:
        """Return the next events, after a pause in which they may become fewer."""
        self.stopped_event.wait(PAUSE_S)
        events = super().read_events(**kwargs)
        if not events and self.should_keep_running():
            # watchdog would ask a closed descriptor again and again, without a pause.
            raise OSError(errno.EBADF, "the descriptor of inotify is closed")
        return _without_repeats(events)

    def handle_event(self, event: InotifyEvent) -> None:
        """Handle one event; tell of a queue that overflowed."""
        super().handle_event(event)
        if event.is_queue_overflow:  # afterwards: the watches of new directories are there now
            self._fault("overflow")

    def add_callback(
        self, path: bytes, mask: Mask, callback: WatchCallback, id_: CallbackId
    ) -> WatchDescriptor:
        """Watch a directory; tell if the kernel grants no more watches."""
        try:
            return super().add_callback(path, mask, callback, id_)
        except OSError as error:
            if error.errno == errno.ENOSPC:  # watchdog passes it over for all but the root
                self._fault("exhausted")
            raise


class _Emitter(InotifyEmitter):
    def get_event_mask_from_filter(self) -> Mask:
        return _HEARD


class InotifyWatch(BaseObserver):
    """An observer of one tree by inotify.

    Raises:
        OSError: the kernel grants no instance or no watch, or the root is gone.

    """

    def __init__(self, root: Path, noted: Noted, fault: Callable[[Fault], None]) -> None:
        self.descriptor = NoticingFD(fault)
        self.descriptor.start()
        super().__init__(_Emitter, inotify_fd=self.descriptor)
        self.schedule(noted, str(root), recursive=True)

    def on_thread_stop(self) -> None:
        """Stop reading."""
        super().on_thread_stop()
        with contextlib.suppress(OSError):  # it died of a descriptor that was closed
            self.descriptor.stop()
        self.descriptor.join()

    def is_whole(self) -> bool:
        """Say whether all of its threads live."""
        threads = (self, self.descriptor, *self.emitters)
        return all(thread.is_alive() for thread in threads)


class PollingWatch(BaseObserver):
    """An observer of one tree by listing it again and again; links are not followed."""

    def __init__(self, root: Path, noted: Noted, *, every_s: float) -> None:
        super().__init__(PollingEmitter, timeout=every_s, stat=os.lstat)
        self.schedule(noted, str(root), recursive=True)

    def is_whole(self) -> bool:
        """Say whether all of its threads live."""
        return all(thread.is_alive() for thread in (self, *self.emitters))


def _without_repeats(events: list[InotifyEvent]) -> list[InotifyEvent]:
    """Drop what says again that a file was written to; all else has its order."""
    told: set[InotifyEvent] = set()
    kept = []
    for event in events:
        if event.is_modify:
            if event in told:
                continue
            told.add(event)
        kept.append(event)
    return kept


def _text(path: str | bytes) -> str:
    return path if isinstance(path, str) else path.decode("utf-8", "surrogateescape")
