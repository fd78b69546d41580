"""The quick look at the database for ``status`` and ``explain``: read-only, by plain sqlite3.

Owns the reads of entries and aliases, of environments, of known digests, and, for the plan of what
is collected, of the use of bundles. Imports nothing that takes long (no sqlite-utils), writes
nothing, migrates nothing, and works for a user who may not write the state directory.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from prewarm.errors import LockHeld, NotWritable, PrewarmError, StoreCorrupt
from prewarm.store.collect_plan import Use
from prewarm.store.schema import SCHEMA_VERSION
from prewarm.store.timestamp import epoch_seconds

#: A reader waits only for a writer that is folding the write-ahead log.
_BUSY_TIMEOUT_S = 2.0

_SQL = """
SELECT entries.model, coalesce(checkpoints.aliases, '[]'), entries.environment_id, entries.status,
  entries.reason, entries.code, entries.attempts, entries.next_try_at, entries.build_key,
  entries.record, entries.log, entries.updated_at
FROM entries LEFT JOIN checkpoints ON checkpoints.name = entries.model
ORDER BY entries.model, entries.environment_id
"""

_ENVIRONMENTS_SQL = "SELECT id, facts FROM environments"

# Who stands on a bundle, and when it was proven or started from last; and the bundles that work may
# be sharing or starting from now, those of the architecture.
_USES_SQL = """
SELECT bundle_sha256, model, status IN ('building', 'proving'),
  json_extract(record, '$.proof.proved_at') FROM entries
WHERE bundle_sha256 IS NOT NULL AND status IN ('building', 'proving', 'warm', 'partial')
UNION ALL
SELECT bundle_sha256, NULL, 0, max(at) FROM reports
WHERE bundle_sha256 IS NOT NULL GROUP BY bundle_sha256
UNION ALL
SELECT bundles.sha256, NULL, 1, NULL FROM bundles WHERE architecture IN (
  SELECT checkpoints.architecture FROM checkpoints JOIN entries ON entries.model = checkpoints.name
  WHERE entries.status IN ('building', 'proving')
)
"""

_LOGS_SQL = """
SELECT log FROM entries WHERE log IS NOT NULL UNION SELECT log FROM builds WHERE log IS NOT NULL
"""

_PATHS_SQL = "SELECT path FROM files"

_DIGESTS_SQL = """
SELECT path, size_bytes, mtime_ns, ctime_ns, inode, digest FROM files
WHERE path IN (SELECT value FROM json_each(?))
"""


@dataclass(frozen=True, slots=True)
class StatusRow:
    """An entry as ``status`` shows it."""

    model: str
    aliases: tuple[str, ...]
    environment_id: str
    status: str
    reason: str | None
    code: str | None
    attempts: int
    next_try_at: str | None
    build_key: str | None
    record_json: str | None
    log: str | None
    updated_at: str

    @property
    def record(self) -> dict[str, Any] | None:
        """The manifest entry, None until it was built; parsed at each use, 0.05 ms."""
        if self.record_json is None:
            return None
        record: dict[str, Any] = json.loads(self.record_json)
        return record


def read_status(state_dir: Path) -> tuple[StatusRow, ...]:
    """Return every entry by model and environment.

    Raises:
        PrewarmError: there is no state yet, or another version of prewarm wrote it.
        StoreCorrupt: the file is damaged or no database.
        NotWritable: this user may not read it.
        LockHeld: a writer kept it locked.
    """
    return tuple(_row(row) for row in read_rows(state_dir, _SQL))


def read_environments(state_dir: Path) -> dict[str, dict[str, str | None]]:
    """Return the facts of every environment seen, by its id.

    Raises:
        PrewarmError: as ``read_status``.
    """
    return {row[0]: json.loads(row[1]) for row in read_rows(state_dir, _ENVIRONMENTS_SQL)}


def read_uses(state_dir: Path) -> dict[str, Use]:
    """Return what the state knows of each bundle's use, by its digest.

    Raises:
        PrewarmError: as ``read_status``.
    """
    uses: dict[str, Use] = {}
    for sha256, model, is_worked_with, used_at in read_rows(state_dir, _USES_SQL):
        known = uses.get(sha256, Use())
        uses[sha256] = Use(
            models=(*known.models, model) if model is not None else known.models,
            used_s=max(known.used_s, epoch_seconds(used_at) if used_at else 0.0),
            is_worked_with=known.is_worked_with or bool(is_worked_with),
        )
    return uses


def read_logs(state_dir: Path) -> frozenset[str]:
    """Return the names of the logs that an entry or a build names.

    Raises:
        PrewarmError: as ``read_status``.
    """
    return frozenset(Path(row[0]).name for row in read_rows(state_dir, _LOGS_SQL))


def read_paths(state_dir: Path) -> tuple[str, ...]:
    """Return the files whose digests are kept.

    Raises:
        PrewarmError: as ``read_status``.
    """
    return tuple(row[0] for row in read_rows(state_dir, _PATHS_SQL))


def read_digests(state_dir: Path, paths: Iterable[Path]) -> dict[tuple[str | int, ...], str]:
    """Return the digests of files by path, size, modification and change time, and inode.

    Raises:
        PrewarmError: as ``read_status``.
    """
    names = json.dumps([str(path) for path in paths])
    return {tuple(row[:5]): str(row[5]) for row in read_rows(state_dir, _DIGESTS_SQL, names)}


def read_rows(state_dir: Path, sql: str, *parameters: str | int) -> list[tuple[Any, ...]]:
    """Return the rows of one statement that only reads.

    Raises:
        PrewarmError: as ``read_status``.
    """
    path = state_dir / "prewarm.db"
    with _told(path), _opened(path) as connection:
        [[version]] = connection.execute("PRAGMA user_version")
        if version != SCHEMA_VERSION:
            raise _other_version(path, version)
        return connection.execute(sql, parameters).fetchall()


def _row(row: tuple[Any, ...]) -> StatusRow:
    model, aliases, environment_id, status, reason, code, attempts, next_try_at, *rest = row
    build_key, record_json, log, updated_at = rest
    return StatusRow(
        model=model,
        aliases=tuple(json.loads(aliases)) if aliases != "[]" else (),
        environment_id=environment_id,
        status=status,
        reason=reason,
        code=code,
        attempts=attempts,
        next_try_at=next_try_at,
        build_key=build_key,
        record_json=record_json,
        log=log,
        updated_at=updated_at,
    )


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        present = path.is_file()
    except PermissionError as error:
        raise _unreadable(path, error) from error
    if not present:
        raise PrewarmError(
            f"no state at {path.parent}; run `prewarm scan` first, or name another --state-dir",
            code="no_state",
        )
    with closing(_connect(path, "mode=ro")) as connection:
        try:
            connection.execute("PRAGMA schema_version").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (
                sqlite3.SQLITE_CANTOPEN,
                sqlite3.SQLITE_READONLY,
            ):
                raise
        else:
            yield connection
            return
    # A reader of a WAL database must make its shared memory if no other process has, which takes
    # write access. If nobody has it open, the log is folded in and the file can be read as it lies.
    with closing(_connect(path, "immutable=1")) as connection:
        yield connection


def _connect(path: Path, how: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?{how}", uri=True, timeout=_BUSY_TIMEOUT_S
    )


def _other_version(path: Path, version: int) -> PrewarmError:
    if version > SCHEMA_VERSION:
        return PrewarmError(
            f"{path}: was written by a newer prewarm (schema {version}, this one knows "
            f"{SCHEMA_VERSION}); upgrade this prewarm",
            code="newer_schema",
        )
    return PrewarmError(
        f"{path}: was written by an older prewarm or not to its end; run `prewarm scan` once",
        code="older_schema",
    )


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise LockHeld(f"{path}: is locked by another process; try again") from error
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY):
            raise _unreadable(path, error) from error
        raise StoreCorrupt(
            f"{path}: is damaged or no database ({error}); move it away and run `prewarm scan`, "
            "which finds out everything in it again"
        ) from error


def _unreadable(path: Path, error: Exception) -> NotWritable:
    return NotWritable(f"{path}: cannot be read ({error}); give this user read access to it")
