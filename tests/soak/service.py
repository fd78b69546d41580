"""One ``prewarm serve`` of a soak: what it logs is counted, and the last of it kept."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any


class Service:
    """The process and its log."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.counts: Counter[str] = Counter()
        self.troubles: Counter[str] = Counter()
        self._last: deque[dict[str, Any]] = deque(maxlen=500)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "prewarm.cli", "serve", "--log-format", "json"],
            env=dict(environ), stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                told = {"event": "text", "detail": line}
                event = json.loads(line) if line.startswith("{") else told
                self.counts[event["event"]] += 1
                if event["event"] == "trouble":
                    self.troubles[event.get("code", "")] += 1
                self._last.append(event)

    def last(self, count: int) -> list[dict[str, Any]]:
        """Return the last events of what went wrong."""
        wrong = [event for event in list(self._last) if event.get("level") != "info"]
        return wrong[-count:]

    def wait_for(self, event: str) -> None:
        ends_s = time.monotonic() + 60
        while not self.counts[event]:
            assert time.monotonic() < ends_s and self.process.poll() is None, self.last(20)
            time.sleep(0.05)

    def reload(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def end(self) -> int:
        """End it in order; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=30)
        self._reader.join(10)
        return code

    def kill(self) -> None:
        """End it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)
