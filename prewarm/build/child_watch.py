"""Looking at a running child: the lines that it writes, its time, its memory.

Owns reading the protocol; what an end means is told in ``child.py``.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from prewarm.build.process_group import POLL_S
from prewarm.build.processes import Processes

#: Largest standard output that is read: the protocol needs some hundred kilobytes.
OUTPUT_LIMIT_BYTES = 64 * 1024 * 1024

Progress = Callable[[Mapping[str, Any]], None]


class Watching:
    """Looks at a running child until it has answered, ended, or must be ended."""

    def __init__(
        self,
        processes: Processes,
        lines: Any,
        progress: Progress | None,
        stop: threading.Event,
    ) -> None:
        self._processes = processes
        self._lines = lines
        self._progress = progress
        self._stop = stop
        self._rest = b""
        self._read = 0
        self.answer: dict[str, Any] | None = None
        self.failure: dict[str, Any] | None = None
        self.rubbish: str | None = None
        self.ended_for: tuple[str, str] | None = None
        self.interrupted = False

    def until_end(self, timeout_s: float, *, still_s: Callable[[float, float], float]) -> None:
        """Return once the child has ended by itself or must be ended; ``ended_for`` says why.

        ``still_s`` tells how many seconds of a time it held still, which are not its own.
        """
        began_s = time.monotonic()
        while True:
            ended = self._processes.process.poll() is not None
            self._take_lines()
            over = self._processes.over_limit()
            if over is not None:
                self.ended_for = ("memory_limit", over)
                return
            if ended:
                return
            now_s = time.monotonic()
            if now_s - began_s - still_s(began_s, now_s) > timeout_s:
                self.ended_for = (
                    "timeout",
                    f"no answer within {timeout_s:g} s (timeout_s); it was ended",
                )
                return
            if self._stop.wait(POLL_S):
                self.interrupted = True
                return

    def _take_lines(self) -> None:
        data = self._lines.read(OUTPUT_LIMIT_BYTES)
        self._read += len(data)
        if self._read > OUTPUT_LIMIT_BYTES:
            self.rubbish = f"more than {OUTPUT_LIMIT_BYTES} bytes of output"
            return
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            (kind, value), *others = message.items()
        except (ValueError, AttributeError):
            self.rubbish = line[:120].decode("utf-8", "replace")
            return
        if others or not isinstance(value, dict):
            self.rubbish = line[:120].decode("utf-8", "replace")
        elif kind == "progress" and self._progress:
            self._progress(value)
        elif kind == "answer":
            self.answer = value
        elif kind == "failure":
            self.failure = value
