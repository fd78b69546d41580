"""The figures of real builds with torch: the second checkpoint of an architecture."""

from __future__ import annotations

import time
from pathlib import Path

from bench.figure import Figure
from bench.process import memory, timed

from prewarm.cli.demo_registry import write_demo_registry
from prewarm.store.database import DATABASE_NAME, Database
from prewarm.store.timestamp import epoch_seconds


def build_figures(root: Path) -> list[Figure]:
    """Two real builds: the second checkpoint of an architecture against the first."""
    registry = root / "registry"
    write_demo_registry(registry)
    late = registry / "classifier" / "v2"
    late.rename(root / "v2")
    arguments = [
        "--registry",
        str(registry),
        "--cache-dir",
        str(root / "cache"),
        "--state-dir",
        str(root / "state"),
    ]
    time.sleep(2.1)  # the quiet time of a checkpoint is no part of a build's time
    built = timed(["scan", "classifier/v1", *arguments])
    with Database(root / "state" / DATABASE_NAME) as database:
        first = seconds_of(database, "classifier/v1")
    (root / "v2").rename(late)
    time.sleep(2.1)
    scanned = timed(["scan", "classifier/v2", *arguments])
    with Database(root / "state" / DATABASE_NAME) as database:
        second = seconds_of(database, "classifier/v2")
        entry = next(e for e in database.entries() if e.model == "classifier/v2")
        compiles = len(database.builds(entry.id))
    return [
        Figure("second checkpoint of an architecture / the first", second / first, 0.35, "ratio"),
        Figure("compile runs for the second", float(compiles), 0.0, "runs"),
        Figure("scan, resident without its children", memory([built, scanned]), 120.0, "MB"),
    ]


def seconds_of(database: Database, model: str) -> float:
    """Return the seconds from an entry's queueing to its rest, from the events."""
    events = sorted(database.events(model), key=lambda event: event.id)
    return epoch_seconds(events[-1].at) - epoch_seconds(events[0].at)
