"""prewarm as a process that is measured: its seconds and its own peak memory."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

PREWARM = [sys.executable, "-m", "prewarm.cli"]


def timed(words: list[str]) -> tuple[float, float]:
    """Run prewarm; return its seconds and its own peak resident memory in MB (10**6 bytes)."""
    started_s = time.perf_counter()
    process = subprocess.Popen(
        [*PREWARM, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    peak_kb = 0
    while process.poll() is None:
        peak_kb = max(peak_kb, peak_of(process.pid))
        time.sleep(0.005)
    seconds = time.perf_counter() - started_s
    stderr = process.stderr.read() if process.stderr else ""
    if process.returncode:
        raise SystemExit(f"prewarm {' '.join(words)} ended with {process.returncode}: {stderr}")
    return seconds, peak_kb * 1024 / 1e6


def peak_of(pid: int) -> int:
    """Return the peak of a process's resident memory in kB, 0 once it has ended."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def median(ran: list[tuple[float, float]]) -> float:
    """Return the median seconds."""
    return statistics.median(seconds for seconds, _ in ran)


def memory(ran: list[tuple[float, float]]) -> float:
    """Return the largest peak in MB."""
    return max(peak for _, peak in ran)
