"""What a service takes at one moment: memory, descriptors, threads, children, room, rows."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

import psutil

from .flat import Tolerance

MB = 1_000_000.0

#: What may grow by how much between the second and the last quarter. Counts go up and down with
#: what is under work at the moment of a sample; memory and files must not creep.
TOLERANCES: Mapping[str, Tolerance] = {
    "resident_mb": Tolerance(0.05, 2.0),
    "descriptors": Tolerance(0.0, 4.0),
    "threads": Tolerance(0.0, 3.0),
    "children": Tolerance(0.0, 2.0),
    "database_mb": Tolerance(0.05, 0.2),
    "work_mb": Tolerance(0.25, 0.5),
    "logs_mb": Tolerance(0.10, 0.1),
    "logs": Tolerance(0.10, 10.0),
    "quarantine_mb": Tolerance(0.0, 8 * 0.06),  # it holds eight bundles, and fills in minutes
    "cache_mb": Tolerance(0.20, 0.5),
    "files in cache_dir": Tolerance(0.20, 10.0),
    "rows of entries": Tolerance(0.02, 20.0),
    "rows of events": Tolerance(0.05, 200.0),
    "rows of builds": Tolerance(0.05, 50.0),
    "rows of reports": Tolerance(0.02, 5.0),
    "rows of bundles": Tolerance(0.20, 10.0),
    "rows of files": Tolerance(0.20, 20.0),
    "rows of requests": Tolerance(0.20, 10.0),
}

_TABLES = ("entries", "events", "builds", "reports", "bundles", "files", "requests")


def sample(process: psutil.Process, state_dir: Path, cache_dir: Path) -> dict[str, float]:
    """Look once."""
    with process.oneshot():
        taken = {
            "resident_mb": process.memory_info().rss / MB,
            "descriptors": float(process.num_fds()),
            "threads": float(process.num_threads()),
            "children": float(len(process.children(recursive=True))),
        }
    logs = list(sizes(state_dir / "logs"))
    cache = list(sizes(cache_dir))
    taken |= {
        "database_mb": sum(size for path, size in sizes(state_dir) if _is_database(path)) / MB,
        "work_mb": sum(size for _, size in sizes(state_dir / "work")) / MB,
        "logs_mb": sum(size for _, size in logs) / MB,
        "logs": float(len(logs)),
        "quarantine_mb": sum(size for _, size in sizes(state_dir / "quarantine")) / MB,
        "cache_mb": sum(size for _, size in cache) / MB,
        "files in cache_dir": float(len(cache)),
    }
    return taken | rows(state_dir / "prewarm.db")


def rows(database: Path) -> dict[str, float]:
    """Count the rows of the tables that a service writes to."""
    uri = f"file:{database}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=10)) as connection:
        return {
            f"rows of {table}": float(
                connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            )
            for table in _TABLES
        }


def sizes(directory: Path) -> Iterator[tuple[Path, int]]:
    """Yield all files below a directory; what goes meanwhile is passed over."""
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            with suppress(FileNotFoundError):
                yield path, path.lstat().st_size


def _is_database(path: Path) -> bool:
    return path.name.startswith("prewarm.db") and path.parent.name == "state"
