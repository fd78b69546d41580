"""The table ``events``: every move of every entry.

Owns the reading of it; triggers write it (``schema.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

from prewarm.store.connection import Connection
from prewarm.store.status import Status


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
    """Reads the table ``events``."""

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
