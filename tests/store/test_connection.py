from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from prewarm.errors import ConfigError, LockHeld, NoSpace, NotWritable, StoreCorrupt
from prewarm.store import connection, schema
from prewarm.store.database import Database
from prewarm.store.schema import APPLICATION_ID, SCHEMA_VERSION

At = Callable[[float], str]
Unprivileged = Callable[[], AbstractContextManager[None]]

_OPENER = """
import sys
from pathlib import Path
from prewarm.store.database import Database
sys.stdin.readline()
with Database(Path(sys.argv[1])) as database:
    for number in range(25):
        database.put_entry(f"m{number}", sys.argv[2], at="2027-01-15T08:00:00.000Z")
"""


def test_new_database_is_wal_of_the_present_schema_and_ours(
    database: Database, state_dir: Path
) -> None:
    with sqlite3.connect(state_dir / "prewarm.db") as plain:
        assert plain.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert plain.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        assert plain.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    plain.close()


def test_several_processes_open_and_write_a_new_database_at_once(state_dir: Path) -> None:
    path = state_dir / "prewarm.db"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _OPENER, str(path), f"environment-{number}"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    errors = [process.communicate()[1].decode() for process in processes]
    assert [error for error in errors if error] == []
    with Database(path) as database:
        assert len(database.entries()) == 100
        assert len(database.events(limit=1000)) == 100


def test_migrations_are_applied_in_order_once(
    state_dir: Path, at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = state_dir / "prewarm.db"
    with Database(path) as database:
        database.put_entry("m", "e", at=at(0))
    later = (
        *schema.MIGRATIONS,
        "ALTER TABLE entries ADD COLUMN wanted TEXT; CREATE TABLE extra (a);",
        "UPDATE entries SET wanted = 'yes'; INSERT INTO extra VALUES (1);",
    )
    monkeypatch.setattr(connection, "MIGRATIONS", later)
    monkeypatch.setattr(connection, "SCHEMA_VERSION", len(later))
    for _ in range(2):
        with Database(path) as database:
            assert database.query("SELECT wanted FROM entries") == [{"wanted": "yes"}]
            assert database.query("SELECT a FROM extra") == [{"a": 1}]
            assert database.query("PRAGMA user_version") == [{"user_version": len(later)}]


def test_failing_migration_leaves_the_database_as_it_was(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = state_dir / "prewarm.db"
    Database(path).close()
    broken = (*schema.MIGRATIONS, "CREATE TABLE extra (a); INSERT INTO nowhere VALUES (1);")
    with monkeypatch.context() as patched:
        patched.setattr(connection, "MIGRATIONS", broken)
        patched.setattr(connection, "SCHEMA_VERSION", len(broken))
        with pytest.raises(RuntimeError, match="nowhere"):
            Database(path)
    with Database(path) as database:
        assert database.query("SELECT name FROM sqlite_master WHERE name = 'extra'") == []


def test_newer_schema_is_refused_by_number(state_dir: Path) -> None:
    path = state_dir / "prewarm.db"
    with Database(path) as database:
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 3}")
    with pytest.raises(ConfigError, match=rf"schema {SCHEMA_VERSION + 3}.*upgrade this prewarm"):
        Database(path)


@pytest.mark.parametrize("content", [b"no database at all, " * 100, b"\0" * 5000])
def test_file_that_is_no_database_is_told_with_the_next_step(
    state_dir: Path, content: bytes
) -> None:
    state_dir.mkdir()
    path = state_dir / "prewarm.db"
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match=r"no database.*move it away and run `prewarm scan`"):
        Database(path)
    assert path.read_bytes() == content


def test_database_of_another_program_is_left_alone(state_dir: Path) -> None:
    state_dir.mkdir()
    path = state_dir / "prewarm.db"
    with sqlite3.connect(path) as plain:
        plain.execute("CREATE TABLE theirs (a)")
    plain.close()
    with pytest.raises(StoreCorrupt, match="of another program"):
        Database(path)
    with sqlite3.connect(path) as plain:
        assert plain.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
    plain.close()


def test_damaged_pages_are_told(state_dir: Path, at: At) -> None:
    path = state_dir / "prewarm.db"
    with Database(path) as database:
        for number in range(200):
            database.put_entry(f"m{number}", "e", at=at(0))
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
    with pytest.raises(StoreCorrupt, match="damaged"), Database(path) as database:
        database.entries()


def test_network_file_system_is_refused_with_where_to_go(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "network_file_system", lambda path: "nfs4")
    with pytest.raises(ConfigError) as caught:
        Database(state_dir / "prewarm.db")
    assert "(nfs4)" in str(caught.value)
    assert "PREWARM_STATE_DIR" in str(caught.value)
    assert not (state_dir / "prewarm.db").exists()


def test_old_sqlite_is_refused(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(ConfigError, match=r"needs 3\.35\.0 or newer"):
        Database(state_dir / "prewarm.db")


def test_state_dir_that_cannot_be_written_is_told(
    open_path: Path, unprivileged: Unprivileged
) -> None:
    Database(open_path / "prewarm.db").close()
    open_path.chmod(0o555)
    with unprivileged(), pytest.raises(NotWritable, match="give this user write access"):
        Database(open_path / "prewarm.db")
    with unprivileged(), pytest.raises(NotWritable, match="Permission denied"):
        Database(open_path / "below" / "prewarm.db")
    open_path.chmod(0o755)


def test_full_disk_is_told(tiny_disk: Path) -> None:
    with pytest.raises((NoSpace, NotWritable), match=r"space|full"):
        Database(tiny_disk / "prewarm.db")


def test_writer_that_never_ends_is_told(
    database: Database, state_dir: Path, at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_S", 0.05)
    with (
        Database(state_dir / "prewarm.db") as other,
        database.transaction(),
        pytest.raises(LockHeld, match="kept the database locked"),
    ):
        other.put_entry("m", "e", at=at(0))


def test_transaction_is_all_or_nothing(database: Database, at: At) -> None:
    with pytest.raises(ZeroDivisionError), database.transaction():
        database.put_entry("m", "e", at=at(0))
        raise ZeroDivisionError
    assert database.entries() == ()
    database.put_entry("m", "e", at=at(0))
    assert len(database.entries()) == 1


def test_everything_is_readable_with_plain_sqlite_utils(
    database: Database, state_dir: Path, at: At
) -> None:
    database.put_entry("minilm/v1", "e", at=at(0), record={"a": ["ä"]}, own_graph=True)
    told = subprocess.run(
        [sys.executable, "-m", "sqlite_utils", "rows", str(state_dir / "prewarm.db"), "entries"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert '"model": "minilm/v1"' in told
    assert '"own_graph": 1' in told
    assert at(0) in told
