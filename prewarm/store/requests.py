"""The table ``requests``: the models that deployments wait for, whose entries go first.

Owns the table's SQL. Who may ask, and for how long, is ``serve``'s to say; who goes first, the
queue's.

- One row for a model in an environment, however many deployments wait for it.
- A row counts until its time is over; the next request removes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from prewarm.store.connection import Connection


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A model that is waited for; without an environment, in whichever it is built for."""

    id: int
    model: str
    environment_id: str | None
    asked_at: str
    until: str


class Requests(Connection):
    """Reads and writes the table ``requests``."""

    def put_request(
        self, model: str, environment_id: str | None, *, at: str, until: str
    ) -> RequestRow:
        """Record that a model is waited for; who waits already keeps the turn, to the later end."""
        values = {"model": model, "environment_id": environment_id, "at": at, "until": until}
        with self.transaction():
            self.execute("DELETE FROM requests WHERE until <= :at", values)
            rows = self.query(
                """
                UPDATE requests SET until = max(until, :until)
                WHERE model = :model AND environment_id IS :environment_id RETURNING *
                """,
                values,
            ) or self.query(
                """
                INSERT INTO requests (model, environment_id, asked_at, until)
                VALUES (:model, :environment_id, :at, :until) RETURNING *
                """,
                values,
            )
        return RequestRow(**rows[0])

    def live_requests(self, at: str) -> tuple[RequestRow, ...]:
        """Return what is waited for at this time, who asked first before the others."""
        rows = self.query(
            "SELECT * FROM requests WHERE until > :at ORDER BY asked_at, id", {"at": at}
        )
        return tuple(RequestRow(**row) for row in rows)
