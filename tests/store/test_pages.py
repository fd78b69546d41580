from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from prewarm.store.database import DATABASE_NAME, Database
from prewarm.store.pages import SPARE_BYTES
from prewarm.store.status import Status

At = Callable[[float], str]


def fill(database: Database, at: At, *, rounds: int = 1) -> None:
    """Write eight megabytes of entries."""
    with database.transaction():
        for number in range(rounds * 1_000):
            database.put_entry(
                f"m{number}", "e", at=at(number), status=Status.RETIRED, reason="x" * 4_000
            )


def on_disk(state_dir: Path) -> int:
    return (state_dir / DATABASE_NAME).stat().st_size


def test_what_is_forgotten_gives_its_room_back(database: Database, at: At, state_dir: Path) -> None:
    fill(database, at)
    assert database.forget_retired(before=at(0), most=0) == 1_000
    freed_bytes = database.reclaim()
    assert freed_bytes > 3_000_000
    assert on_disk(state_dir) < SPARE_BYTES + 500_000
    assert database.reclaim() == 0


def test_room_that_is_used_again_soon_stays(database: Database, at: At, state_dir: Path) -> None:
    sizes = []
    for _ in range(5):
        fill(database, at)
        database.forget_retired(before=at(0), most=0)
        sizes.append(on_disk(state_dir))
    assert max(sizes) <= sizes[0] * 1.05


def test_a_database_of_an_earlier_version_is_rewritten_once(state_dir: Path, at: At) -> None:
    with Database(state_dir / DATABASE_NAME) as database:
        fill(database, at)
    with sqlite3.connect(state_dir / DATABASE_NAME, isolation_level=None) as plain:
        plain.execute("PRAGMA auto_vacuum = NONE")
        plain.execute("VACUUM")
        assert plain.execute("PRAGMA auto_vacuum").fetchone() == (0,)
    plain.close()
    with Database(state_dir / DATABASE_NAME) as database:
        database.forget_retired(before=at(0), most=0)
        assert database.reclaim() > 3_000_000
        assert database.query("PRAGMA auto_vacuum") == [{"auto_vacuum": 2}]
    assert on_disk(state_dir) < SPARE_BYTES


def test_the_log_beside_it_is_cut(database: Database, at: At, state_dir: Path) -> None:
    fill(database, at, rounds=4)
    log = state_dir / f"{DATABASE_NAME}-wal"
    assert log.stat().st_size > 8 << 20
    database.reclaim()
    database.put_entry("one more", "e", at=at(0))
    assert log.stat().st_size <= 4 << 20
