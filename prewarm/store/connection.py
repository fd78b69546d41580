"""One open ``prewarm.db``: the file checks, the migrations, and how SQLite's failures are told.

Owns no table. The classes for the tables build on ``Connection``; ``database.py`` joins them.

- Several processes may open the file at once: WAL, and a writer waits for another up to
  ``BUSY_TIMEOUT_S``.
- Statements run in autocommit; several that belong together run in ``transaction()``, which takes
  the write lock first. (A deferred BEGIN that upgrades later fails at once: "database is locked".)
- A commit survives any end of the process, and a power cut after ``make_lasting`` alone.
- Rows of ``RETURNING`` are read through ``query``, which ends the statement; ``execute`` would not.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import sqlite_utils

from prewarm.errors import (
    ConfigError,
    LockHeld,
    NoSpace,
    NotWritable,
    PrewarmError,
    StoreCorrupt,
)
from prewarm.file_system import network_file_system
from prewarm.store.schema import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION
from prewarm.store.whole_file import make_directory

BUSY_TIMEOUT_S = 10.0

#: RETURNING came with this version.
_OLDEST_SQLITE = (3, 35, 0)

_RETRY_S = 0.01

#: The write-ahead log is cut to this once it was folded in; a long reader may let it grow.
_WAL_BYTES = 4 << 20

Row = dict[str, Any]


class Connection:
    """An open database of the present schema.

    Raises:
        ConfigError: the directory lies on a network file system, or SQLite is too old.
        StoreCorrupt: the file is no database of ours.
        NotWritable: the file or its directory cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _check_sqlite_version()
        make_directory(path.parent)
        _check_local(path)
        with sqlite_errors(path):
            plain = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
            try:
                self._db = sqlite_utils.Database(plain, execute_plugins=False)
                self._db.execute("PRAGMA foreign_keys = ON")
                self._db.execute("PRAGMA synchronous = NORMAL")
                self._db.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
                self._prepare()
            except BaseException:
                plain.close()
                raise

    def close(self) -> None:
        """Close the file; the last one out folds the write-ahead log into it."""
        with sqlite_errors(self.path):
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[Row]:
        """Run one statement that gives rows, to its end."""
        with sqlite_errors(self.path):
            return list(self._db.query(sql, dict(parameters or {})))

    def execute(self, sql: str, parameters: Mapping[str, object] | None = None) -> None:
        """Run one statement that gives no rows."""
        with sqlite_errors(self.path):
            self._db.execute(sql, dict(parameters or {}))

    def run_through(self, sql: str) -> None:
        """Run one statement to its end that does its work step by step."""
        with sqlite_errors(self.path):
            self._db.execute(sql).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the statements of the block together or not at all."""
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.rollback()
            raise
        self.execute("COMMIT")

    def make_lasting(self) -> None:
        """Bring to the disk what was committed, so that a power cut takes none of it back.

        Commits are whole after a power cut, but the last ones may be gone. What tells others of
        them (a manifest, a removed file) must not be ahead of them.
        """
        self.execute("PRAGMA synchronous = FULL")
        try:
            with self.transaction():
                # A commit of anything syncs all commits before it.
                self.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        finally:
            self.execute("PRAGMA synchronous = NORMAL")

    def _prepare(self) -> None:
        version = self._version()
        if version == SCHEMA_VERSION and self._db.journal_mode == "wal":
            return
        self._check_ours(version)
        if not version:
            # Must be said before anything is written; forgotten rows then give their room back.
            self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        self._use_wal()
        with self.transaction():
            # Another process may have migrated while this one waited for the lock.
            version = self._version()
            self._check_ours(version)
            for number, migration in enumerate(MIGRATIONS[version:], start=version + 1):
                self._db.executescript(migration)
                self.execute(f"PRAGMA user_version = {number}")
            self.execute(f"PRAGMA application_id = {APPLICATION_ID}")

    def _use_wal(self) -> None:
        # Changing the mode needs the file alone and does not wait for it by itself.
        last_try_s = time.monotonic() + BUSY_TIMEOUT_S
        while True:
            try:
                self._db.enable_wal()
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                if time.monotonic() > last_try_s:
                    raise
                time.sleep(_RETRY_S)

    def _version(self) -> int:
        return self._pragma("user_version")

    def _check_ours(self, version: int) -> None:
        if version > SCHEMA_VERSION:
            raise newer_schema(self.path, version)
        application = self._pragma("application_id")
        tables = self.query("SELECT name FROM sqlite_master LIMIT 1")
        ours = application == APPLICATION_ID if version else application == 0 and not tables
        if ours:
            return
        # Another process may have migrated between these reads, each of a state of its own.
        now = self._version()
        if now == version:
            raise not_ours(self.path)
        self._check_ours(now)

    def _pragma(self, name: str) -> int:
        value: int = self.query(f"PRAGMA {name}")[0][name]
        return value


def to_json(value: object) -> str:
    """Write a value for a JSON column."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def newer_schema(path: Path, version: int) -> PrewarmError:
    """Return the error for a database that a later prewarm wrote."""
    return ConfigError(
        f"{path}: was written by a newer prewarm (schema {version}, this one knows "
        f"{SCHEMA_VERSION}); upgrade this prewarm, or choose another state_dir",
        code="newer_schema",
    )


def not_ours(path: Path) -> PrewarmError:
    """Return the error for a database of another program."""
    return StoreCorrupt(
        f"{path}: is a database of another program; choose another state_dir, or move the file away"
    )


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Tell a failure of SQLite on ``path`` as one of our errors, with what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise _told(error, path) from error


def _told(error: sqlite3.Error, path: Path) -> Exception:
    # Errors of the driver itself (a closed connection, say) have no code: our own code is wrong.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LockHeld(
            f"{path}: another process kept the database locked for {BUSY_TIMEOUT_S:.0f} s; "
            "end it or try again"
        )
    if code == sqlite3.SQLITE_FULL:
        return NoSpace(f"{path}: no space left for the database; free some space there")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return NotWritable(
            f"{path}: the database cannot be written ({error}); "
            f"give this user write access to {path.parent}, or choose another state_dir"
        )
    if code == sqlite3.SQLITE_IOERR:
        return NotWritable(
            f"{path}: the disk under the database fails or is full ({error}); "
            "look at its space and its kernel log, or choose another state_dir"
        )
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return StoreCorrupt(
            f"{path}: is damaged or no database ({error}); move it away and run `prewarm scan`, "
            "which finds out everything in it again"
        )
    return RuntimeError(f"{path}: {error}")


def _check_sqlite_version() -> None:
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        oldest = ".".join(str(part) for part in _OLDEST_SQLITE)
        raise ConfigError(
            f"this Python has SQLite {sqlite3.sqlite_version}, prewarm needs {oldest} or newer; "
            "run the builder under a newer Python",
            code="old_sqlite",
        )


def _check_local(path: Path) -> None:
    kind = network_file_system(path.parent)
    if kind is not None:
        raise ConfigError(
            f"state_dir {path.parent}: lies on a network file system ({kind}), where a database is "
            "corrupted; put it on a local disk with --state-dir or PREWARM_STATE_DIR, e.g. "
            "/var/lib/prewarm (cache_dir may stay on the network)",
            code="network_file_system",
        )
