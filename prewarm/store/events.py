"""The table ``events``: the last moves of every entry.

Owns the reading of it, and its bounds over all entries; triggers write it and keep of each entry
the last ``MOST_OF_AN_ENTRY`` (``schema.py``). An entry's last failure always stays: whether the
next one is the same tells when it is tried again.
"""

from __future__ import annotations

from dataclasses import dataclass

from prewarm.store.connection import Connection
from prewarm.store.status import Status

#: What happened to an entry lately: a dozen builds, or some days of coming and going.
MOST_OF_AN_ENTRY = 50

#: Of all entries together: some ten megabytes.
MOST_EVENTS = 50_000


@dataclass(frozen=True, slots=True)
class Event:
    """One move; ``from_status`` is None where the entry appeared."""

    id: int
    at: str
    entry_id: int
    model: str
    from_status: Status | None
    to_status: Status
    reason: str | None
    code: str | None


class Events(Connection):
    """Reads and bounds the table ``events``."""

    def events(self, model: str | None = None, limit: int = 100) -> tuple[Event, ...]:
        """Return the last moves, newest first."""
        rows = self.query(
            """
            SELECT * FROM events WHERE :model IS NULL OR model = :model
            ORDER BY id DESC LIMIT :limit
            """,
            {"model": model, "limit": limit},
        )
        return tuple(
            Event(
                **{
                    **row,
                    "from_status": row["from_status"] and Status(row["from_status"]),
                    "to_status": Status(row["to_status"]),
                }
            )
            for row in rows
        )

    def forget_events(self, *, before: str, most: int = MOST_EVENTS) -> int:
        """Forget what is older than ``before`` and the oldest over ``most``; return how many."""
        rows = self.query(
            """
            DELETE FROM events
            WHERE (
              at < :before
              OR id <= (SELECT id FROM events ORDER BY id DESC LIMIT 1 OFFSET :most)
            ) AND id NOT IN (
              SELECT max(id) FROM events WHERE to_status = 'failed' GROUP BY entry_id
            )
            RETURNING id
            """,
            {"before": before, "most": most},
        )
        return len(rows)
