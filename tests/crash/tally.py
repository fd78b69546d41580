"""What a run of the harness did: how many faults of each kind, and on which machine.

With ``PREWARM_CRASH_RESULT=FILE`` it is written there as JSON at the end.
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import threading
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from prewarm import __version__


class Tally:
    """Counts; may be used from several threads."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.seeds: list[int] = []

    def count(self, kind: str) -> None:
        with self._lock:
            self._counts[kind] += 1

    def of(self, *kinds: str) -> int:
        return sum(self._counts[kind] for kind in kinds)

    @property
    def counts(self) -> dict[str, int]:
        return dict(sorted(self._counts.items()))

    def lines(self) -> list[str]:
        total = sum(self._counts.values())
        return [
            f"{total} faults, all checks passed; seeds {', '.join(map(str, self.seeds))}",
            *(f"  {count:4}  {kind}" for kind, count in self.counts.items()),
        ]

    def write(self, path: Path, *, seconds: float) -> None:
        result = {
            "machine": {
                "cpu": _cpu(),
                "cores": os.cpu_count(),
                "kernel": platform.release(),
                "python": platform.python_version(),
                "sqlite": sqlite3.sqlite_version,
                "prewarm": __version__,
            },
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(seconds),
            "seeds": self.seeds,
            "faults": self.counts,
            "all_checks_passed": True,
        }
        path.write_text(json.dumps(result, indent=2) + "\n")


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
