"""The machine that figures were measured on, and what ran: no name of a host, no path."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from prewarm import __version__


def machine() -> dict[str, object]:
    """Name the machine and what ran."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "sqlite": _sqlite(),
        "torch": _version("torch"),
        "transformers": _version("transformers"),
        "uvicorn": _version("uvicorn"),
        "watchdog": _version("watchdog"),
        "prewarm": __version__,
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _sqlite() -> str:
    import sqlite3

    return sqlite3.sqlite_version


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
