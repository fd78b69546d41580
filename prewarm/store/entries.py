"""The table ``entries``: checkpoint × environment with its status, and every move between statuses.

Owns the table's SQL. Which moves are allowed stands in ``status.py``.

- A move is one guarded UPDATE … RETURNING; no row means ``LostLease``, never a silent pass.
- The event row of a move is written by a trigger, in the same statement.
- Who claimed an entry holds a lease; while it works, only the holder of that lease moves it.
- Resting entries have no lease.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from prewarm.errors import LostLease
from prewarm.store.connection import Connection, Row, to_json
from prewarm.store.status import NEEDS_REASON, WORKING, Status, sources
from prewarm.store.timestamp import is_timestamp


@dataclass(frozen=True, slots=True)
class Entry:
    """A checkpoint in an environment; ``record`` is the manifest entry less model, aliases."""

    id: int
    model: str
    environment_id: str
    status: Status
    reason: str | None
    code: str | None
    attempts: int
    next_try_at: str | None
    checkpoint_digest: str | None
    architecture: str | None
    build_key: str | None
    own_graph: bool
    bundle_sha256: str | None
    record: dict[str, Any] | None
    log: str | None
    lease: str | None
    lease_owner: str | None
    lease_until: str | None
    created_at: str
    updated_at: str


class EntryFields(TypedDict, total=False):
    """What a move may write beside status, reason and code."""

    attempts: int
    next_try_at: str | None
    checkpoint_digest: str | None
    architecture: str | None
    build_key: str | None
    own_graph: bool
    bundle_sha256: str | None
    record: Mapping[str, object] | None
    log: str | None


class Entries(Connection):
    """Reads and writes the table ``entries``."""

    def entry(self, model: str, environment_id: str) -> Entry | None:
        """Return the entry of a checkpoint in an environment."""
        rows = self.query(
            "SELECT * FROM entries WHERE model = :model AND environment_id = :environment_id",
            {"model": model, "environment_id": environment_id},
        )
        return _entry(rows[0]) if rows else None

    def entries(self) -> tuple[Entry, ...]:
        """Return all entries by model and environment."""
        rows = self.query("SELECT * FROM entries ORDER BY model, environment_id")
        return tuple(_entry(row) for row in rows)

    def entries_in(self, statuses: Collection[Status]) -> tuple[Entry, ...]:
        """Return the entries of some statuses by model and environment.

        Those that are retired may be far more than those that are there.
        """
        rows = self.query(
            """
            SELECT * FROM entries WHERE status IN (SELECT value FROM json_each(:statuses))
            ORDER BY model, environment_id
            """,
            {"statuses": to_json(sorted(statuses))},
        )
        return tuple(_entry(row) for row in rows)

    def entries_of(self, model: str) -> tuple[Entry, ...]:
        """Return the entries of a checkpoint in all environments."""
        rows = self.query("SELECT * FROM entries WHERE model = :model", {"model": model})
        return tuple(_entry(row) for row in rows)

    def entries_on(self, sha256: str) -> tuple[Entry, ...]:
        """Return the entries that stand on a bundle, or stood on it when they were last proven."""
        rows = self.query(
            "SELECT * FROM entries WHERE bundle_sha256 = :sha256 ORDER BY model, environment_id",
            {"sha256": sha256},
        )
        return tuple(_entry(row) for row in rows)

    def put_entry(
        self,
        model: str,
        environment_id: str,
        *,
        at: str,
        status: Status = Status.QUEUED,
        reason: str | None = None,
        code: str | None = None,
        **fields: Unpack[EntryFields],
    ) -> Entry:
        """Return the entry as it is, or add it with this status; ``fields`` are for a new one only.

        A status that needs a proof may be given where an empty state adopts a signed manifest.
        """
        _check(status, reason, at)
        values = {
            "model": model,
            "environment_id": environment_id,
            "status": status.value,
            "reason": reason,
            "code": code,
            "created_at": at,
            "updated_at": at,
            **_columns(fields),
        }
        # The empty update makes RETURNING answer for a row that was there; no trigger fires for it.
        names, slots = ", ".join(values), ", ".join(f":{column}" for column in values)
        [row] = self.query(
            f"""
            INSERT INTO entries ({names}) VALUES ({slots})
            ON CONFLICT (model, environment_id) DO UPDATE SET model = excluded.model
            RETURNING *
            """,
            values,
        )
        return _entry(row)

    def move(
        self,
        entry_id: int,
        to: Status,
        *,
        at: str,
        reason: str | None = None,
        code: str | None = None,
        lease: str | None = None,
        **fields: Unpack[EntryFields],
    ) -> Entry:
        """Move an entry to a status; reason and code are replaced, ``fields`` where given.

        ``lease`` is the token that ``claim`` gave; None for work without one. Moving to a status
        that rests gives the lease back.

        Raises:
            LostLease: the move is not allowed from the present status, or the lease is another's.
        """
        _check(to, reason, at)
        columns = _columns(fields)
        if to not in WORKING:
            columns |= {"lease": None, "lease_owner": None, "lease_until": None}
        settings = "".join(f", {column} = :{column}" for column in columns)
        rows = self.query(
            f"""
            UPDATE entries
            SET status = :to, reason = :reason, code = :code, updated_at = :at{settings}
            WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))
              AND lease IS :held
            RETURNING *
            """,
            {
                **columns,
                "id": entry_id,
                "to": to.value,
                "reason": reason,
                "code": code,
                "at": at,
                "sources": to_json([status.value for status in sources(to)]),
                "held": lease,
            },
        )
        if not rows:
            raise self._lost(entry_id, to, lease)
        return _entry(rows[0])

    def claim(
        self,
        *,
        owner: str,
        at: str,
        lease_until: str,
        model: str | None = None,
        among: Sequence[int] | None = None,
    ) -> Entry | None:
        """Take a queued entry for building, under a lease; None if none waits that is due.

        The first one of ``among`` (ids, what goes first before the rest), else the oldest.
        """
        _check(Status.BUILDING, None, at)
        rows = self.query(
            """
            UPDATE entries SET status = 'building', reason = NULL, code = NULL, updated_at = :at,
              lease = :lease, lease_owner = :owner, lease_until = :until
            WHERE id = (
              SELECT id FROM entries
              WHERE status = 'queued' AND (next_try_at IS NULL OR next_try_at <= :at)
                AND (:model IS NULL OR model = :model)
                AND (:among IS NULL OR id IN (SELECT value FROM json_each(:among)))
              ORDER BY (SELECT key FROM json_each(coalesce(:among, '[]')) WHERE value = entries.id),
                updated_at, id
              LIMIT 1
            )
            RETURNING *
            """,
            {
                "at": at,
                "lease": secrets.token_hex(16),
                "owner": owner,
                "until": lease_until,
                "model": model,
                "among": None if among is None else to_json(list(among)),
            },
        )
        return _entry(rows[0]) if rows else None

    def renew(self, entry_id: int, lease: str, *, until: str) -> None:
        """Hold a claimed entry for longer.

        Raises:
            LostLease: the entry was given to somebody else.
        """
        rows = self.query(
            """
            UPDATE entries SET lease_until = :until WHERE id = :id AND lease = :lease RETURNING id
            """,
            {"id": entry_id, "lease": lease, "until": until},
        )
        if not rows:
            raise LostLease(f"entry {entry_id}: its lease is over and it was given back")

    def _release_entries(self, *, at: str, until: str) -> tuple[Entry, ...]:
        rows = self.query(
            """
            UPDATE entries SET status = 'queued', code = 'interrupted', updated_at = :at,
              reason = 'the process that worked on it ended before it was done',
              lease = NULL, lease_owner = NULL, lease_until = NULL
            WHERE status IN ('building', 'proving') AND (lease IS NULL OR lease_until <= :until)
            RETURNING *
            """,
            {"at": at, "until": until},
        )
        return tuple(_entry(row) for row in rows)

    def _lost(self, entry_id: int, to: Status, lease: str | None) -> LostLease:
        rows = self.query("SELECT * FROM entries WHERE id = :id", {"id": entry_id})
        if not rows:
            return LostLease(f"entry {entry_id}: is not in the database any more")
        present = _entry(rows[0])
        if present.status not in sources(to):
            return LostLease(
                f"{present.model}: is {present.status} by now and cannot become {to} from there"
            )
        holder = present.lease_owner or "nobody"
        return LostLease(f"{present.model}: cannot become {to}, since {holder} holds its lease")


def _check(status: Status, reason: str | None, at: str) -> None:
    if status in NEEDS_REASON and not reason:
        raise RuntimeError(f"{status} without a reason")
    if not is_timestamp(at):
        raise RuntimeError(f"{at!r} is no time as timestamp() writes it")


def _columns(fields: EntryFields) -> dict[str, object]:
    unknown = set(fields) - EntryFields.__annotations__.keys()
    if unknown:
        raise RuntimeError(f"no columns of an entry: {', '.join(sorted(unknown))}")
    columns: dict[str, object] = dict(fields)
    if columns.get("record") is not None:
        columns["record"] = to_json(columns["record"])
    return columns


def _entry(row: Row) -> Entry:
    return Entry(
        **{
            **row,
            "status": Status(row["status"]),
            "own_graph": bool(row["own_graph"]),
            "record": None if row["record"] is None else json.loads(row["record"]),
        }
    )
