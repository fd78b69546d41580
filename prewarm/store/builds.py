"""The table ``builds``: the last runs of children that compile, with how they ended.

Owns the table's SQL and its bounds. Decides nothing about entries. Of those that are forgotten a
trigger keeps the number, by outcome (``schema.py``), so that totals only grow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prewarm.errors import LostLease
from prewarm.store.connection import Connection, to_json

INTERRUPTED = "interrupted"
"""The outcome of a build whose process ended without a word."""


#: Of an entry: several rounds of retries down the ladder of modes.
MOST_OF_AN_ENTRY = 20

#: Of all entries together.
MOST_BUILDS = 20_000


@dataclass(frozen=True, slots=True)
class BuildRow:
    """One build; ``outcome`` is None while it runs."""

    id: int
    entry_id: int
    build_key: str
    started_at: str
    ended_at: str | None
    outcome: str | None
    reason: str | None
    mode: str | None
    peak_memory_bytes: int | None
    log: str | None


class Builds(Connection):
    """Reads and writes the table ``builds``."""

    def start_build(self, entry_id: int, key: str, *, at: str, log: str | None = None) -> int:
        """Record that a build began; the answer is its id. The entry's oldest are forgotten."""
        with self.transaction():
            [row] = self.query(
                """
                INSERT INTO builds (entry_id, build_key, started_at, log)
                VALUES (:entry_id, :key, :at, :log) RETURNING id
                """,
                {"entry_id": entry_id, "key": key, "at": at, "log": log},
            )
            self.execute(
                """
                DELETE FROM builds WHERE entry_id = :entry_id AND ended_at IS NOT NULL AND id <= (
                  SELECT id FROM builds WHERE entry_id = :entry_id
                  ORDER BY id DESC LIMIT 1 OFFSET :most
                )
                """,
                {"entry_id": entry_id, "most": MOST_OF_AN_ENTRY},
            )
        build_id: int = row["id"]
        return build_id

    def end_build(
        self,
        build_id: int,
        outcome: str,
        *,
        at: str,
        reason: str | None = None,
        peak_memory_bytes: int | None = None,
        mode: str | None = None,
    ) -> None:
        """Record how a build ended.

        Raises:
            LostLease: it is over already, or there is no such build.
        """
        rows = self.query(
            """
            UPDATE builds SET outcome = :outcome, reason = :reason, ended_at = :at,
              peak_memory_bytes = :peak_memory_bytes, mode = :mode
            WHERE id = :id AND ended_at IS NULL RETURNING id
            """,
            {
                "id": build_id,
                "outcome": outcome,
                "reason": reason,
                "at": at,
                "peak_memory_bytes": peak_memory_bytes,
                "mode": mode,
            },
        )
        if not rows:
            raise LostLease(f"build {build_id}: is over already, so it cannot end as {outcome}")

    def builds(self, entry_id: int) -> tuple[BuildRow, ...]:
        """Return the builds of an entry, oldest first."""
        rows = self.query(
            "SELECT * FROM builds WHERE entry_id = :entry_id ORDER BY id", {"entry_id": entry_id}
        )
        return tuple(BuildRow(**row) for row in rows)

    def forget_builds(self, *, before: str, most: int = MOST_BUILDS) -> int:
        """Forget what ended before ``before`` and the oldest over ``most``; return how many.

        Each entry's last build stays, and what still runs.
        """
        rows = self.query(
            """
            DELETE FROM builds
            WHERE ended_at IS NOT NULL
              AND (ended_at < :before
                OR id <= (SELECT id FROM builds ORDER BY id DESC LIMIT 1 OFFSET :most))
              AND id NOT IN (SELECT max(id) FROM builds GROUP BY entry_id)
            RETURNING id
            """,
            {"before": before, "most": most},
        )
        return len(rows)

    def _interrupt_all_builds(self, *, at: str) -> None:
        self.execute(
            """
            UPDATE builds SET outcome = :outcome, ended_at = :at,
              reason = 'its end could not be written'
            WHERE ended_at IS NULL
            """,
            {"outcome": INTERRUPTED, "at": at},
        )

    def _interrupt_builds(self, entry_ids: Iterable[int], *, at: str) -> None:
        self.execute(
            """
            UPDATE builds SET outcome = :outcome, ended_at = :at,
              reason = 'the process that built it ended before it was done'
            WHERE ended_at IS NULL AND entry_id IN (SELECT value FROM json_each(:entries))
            """,
            {"outcome": INTERRUPTED, "at": at, "entries": to_json(list(entry_ids))},
        )
