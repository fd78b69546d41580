"""The table ``checkpoints``: what the last scans saw in the registry.

Owns the table's SQL. Entries of a checkpoint stand in ``entries.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from prewarm.plain_text import spelt_plain
from prewarm.store.connection import Connection, Row, to_json


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A checkpoint as it was seen last; no digest while it is incomplete."""

    name: str
    path: str
    digest: str | None
    architecture: str | None
    aliases: tuple[str, ...]
    size_bytes: int
    first_seen_at: str
    seen_at: str
    retired_at: str | None


class Checkpoints(Connection):
    """Reads and writes the table ``checkpoints``."""

    def see_checkpoint(
        self,
        name: str,
        path: Path | str,
        *,
        digest: str | None,
        architecture: str | None,
        aliases: Sequence[str] = (),
        size_bytes: int = 0,
        at: str,
    ) -> CheckpointRow:
        """Record a checkpoint that a scan found; one that had gone is back with this."""
        [row] = self.query(
            """
            INSERT INTO checkpoints
              (name, path, digest, architecture, aliases, size_bytes, first_seen_at, seen_at)
            VALUES (:name, :path, :digest, :architecture, :aliases, :size_bytes, :at, :at)
            ON CONFLICT (name) DO UPDATE SET
              path = excluded.path, digest = excluded.digest,
              architecture = excluded.architecture, aliases = excluded.aliases,
              size_bytes = excluded.size_bytes, seen_at = excluded.seen_at, retired_at = NULL
            RETURNING *
            """,
            {
                "name": name,
                "path": spelt_plain(str(path)),
                "digest": digest,
                "architecture": architecture,
                "aliases": to_json(list(aliases)),
                "size_bytes": size_bytes,
                "at": at,
            },
        )
        return _checkpoint(row)

    def checkpoints(self) -> tuple[CheckpointRow, ...]:
        """Return every checkpoint ever seen, gone ones too, by name."""
        rows = self.query("SELECT * FROM checkpoints ORDER BY name")
        return tuple(_checkpoint(row) for row in rows)

    def checkpoint_named(self, name: str) -> CheckpointRow | None:
        """Return the checkpoint that is there under a name or alias; its own name goes first."""
        rows = self.query(
            """
            SELECT * FROM checkpoints WHERE retired_at IS NULL AND (
              name = :name OR :name IN (SELECT value FROM json_each(aliases))
            ) ORDER BY name = :name DESC, name LIMIT 1
            """,
            {"name": name},
        )
        return _checkpoint(rows[0]) if rows else None

    def _retire_checkpoints(self, present_names: Iterable[str], *, at: str) -> set[str]:
        rows = self.query(
            """
            UPDATE checkpoints SET retired_at = :at
            WHERE retired_at IS NULL AND name NOT IN (SELECT value FROM json_each(:present))
            RETURNING name
            """,
            {"present": to_json(list(present_names)), "at": at},
        )
        return {row["name"] for row in rows}


def _checkpoint(row: Row) -> CheckpointRow:
    return CheckpointRow(**{**row, "aliases": tuple(json.loads(row["aliases"]))})
