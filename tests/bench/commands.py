"""The figures of the commands that must be quick: ``hook`` and ``status``."""

from __future__ import annotations

from pathlib import Path

from bench.figure import Figure
from bench.made import ENTRIES, add_entries, add_starts, publish_bundle
from bench.process import median, memory, timed

from prewarm.store.database import DATABASE_NAME, Database
from prewarm.store.reports import MOST_REPORTS

ROUNDS = 5
FILES, UNPACKED_BYTES = 2_500, 130_000_000


def hook_figures(root: Path) -> list[Figure]:
    """A hook that fills from a bundle of GPU size, and one whose directory is already right."""
    publish_bundle(root, files=FILES, unpacked_bytes=UNPACKED_BYTES, noise=0.125)

    def hook(into: Path) -> tuple[float, float]:
        return timed(
            ["hook", "model-0000/v1", "--into", str(into), "--on-miss", "fail",
             "--cache-dir", str(root / "cache"), "--env-file", str(root / "env")]
        )  # fmt: skip

    filled = [hook(root / f"private-{number}") for number in range(ROUNDS)]
    right = [hook(root / "private-0") for _ in range(ROUNDS)]
    return [
        Figure(f"`hook`, bundle of {FILES:,} files, 130 MB unpacked", median(filled), 1.0, "s"),
        Figure("`hook`, directory already right", median(right), 0.25, "s"),
        Figure("`hook` while it unpacks, resident", memory(filled), 120.0, "MB"),
    ]


def status_figures(root: Path) -> list[Figure]:
    """``prewarm status`` with a thousand entries."""
    with Database(root / DATABASE_NAME) as database:
        add_entries(database, "e" * 16, {"device": "cpu"}, {}, count=ENTRIES)
        add_starts(database, count=MOST_REPORTS)
    ran = [timed(["status", "--state-dir", str(root)]) for _ in range(ROUNDS)]
    what = f"`status`, {ENTRIES:,} entries, {MOST_REPORTS:,} starts"
    return [
        Figure(what, median(ran), 0.25, "s"),
        Figure("`status`, resident", memory(ran), 120.0, "MB"),
    ]
