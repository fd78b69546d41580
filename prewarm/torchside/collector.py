"""Python's garbage collector, held back while torch is imported and while it compiles.

A start makes millions of objects that all stay. Collecting while it does so looks at them again and
again and finds nothing: a fifth of a warm first call. Within a quiet stretch what is there is
frozen and the collector comes less often; afterwards all is as it was. Standard library only.

- Stretches nest and overlap over threads: the first one in and the last one out do the work.
- A server that has frozen objects itself, switched the collector off or set thresholds meanwhile
  keeps its own way.
"""

from __future__ import annotations

import functools
import gc
import os
import threading

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

#: New objects between two looks at the youngest; a frame of a large model makes some 100,000.
THRESHOLD = 100_000


class Quiet:
    """The quiet stretches of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._pid = 0
        self._before: tuple[int, int, int] | None = None
        self._froze = False

    def begin(self) -> None:
        """Begin a stretch."""
        with self._lock:
            if self._pid != os.getpid():  # a forked copy has none of the threads that were in one
                self._pid, self._depth = os.getpid(), 0
            self._depth += 1
            if self._depth > 1 or not gc.isenabled():
                return
            self._froze = gc.get_freeze_count() == 0
            if self._froze:
                gc.freeze()
            self._before = gc.get_threshold()
            if 0 < self._before[0] < THRESHOLD:
                gc.set_threshold(THRESHOLD, *self._before[1:])

    def end(self) -> None:
        """End a stretch; the last one puts everything back."""
        with self._lock:
            self._depth = max(0, self._depth - 1)
            if self._depth or self._before is None:
                return
            if gc.get_threshold()[0] == THRESHOLD:
                gc.set_threshold(*self._before)
            if self._froze:
                gc.unfreeze()
            self._before = None


quiet = Quiet()


def quiet_import(module: ModuleType) -> Callable[[], None]:
    """Begin a stretch before a module's code; return what ends it."""
    quiet.begin()
    return quiet.end


def quiet_frames(convert_frame: ModuleType) -> bool:
    """Make each compile of a frame a stretch; return whether this torch has the place for it.

    ``convert_frame`` is torch._dynamo.convert_frame, whose ``_compile`` traces one frame and has
    its graphs compiled or found.
    """
    inner: Any = getattr(convert_frame, "_compile", None)
    if inner is None:
        return False

    @functools.wraps(inner)
    def _compile(*args: Any, **kwargs: Any) -> Any:
        quiet.begin()
        try:
            return inner(*args, **kwargs)
        finally:
            quiet.end()

    convert_frame._compile = _compile  # type: ignore[attr-defined]
    return True
