"""What is tried again, and what waits: moves of many entries at once in the table ``entries``.

Owns the SQL of ``prewarm retry``, of retries that are due, and of the reason why nothing begins.
Each is one guarded UPDATE, so it needs no lock beside a daemon at work.
"""

from __future__ import annotations

from collections.abc import Iterable

from prewarm.store.connection import Connection, to_json

#: The code of an entry whose bundle left the manifest for the bounds of the cache.
EVICTED = "evicted"


class Retries(Connection):
    """Queues entries again; their order in the queue is that of ``updated_at``."""

    def retry(self, models: Iterable[str] | None, *, at: str) -> tuple[str, ...]:
        """Queue what failed, was evicted or waits for its next try; return the models.

        Of all models where None are given. What is under work, warm or still written stays.
        """
        rows = self.query(
            """
            UPDATE entries SET status = 'queued', reason = NULL, code = NULL, attempts = 0,
              next_try_at = NULL, updated_at = :at
            WHERE (:models IS NULL OR model IN (SELECT value FROM json_each(:models)))
              AND environment_id != ''
              AND (status = 'failed' OR (status = 'stale' AND code = :evicted)
                OR (status = 'queued' AND next_try_at IS NOT NULL))
            RETURNING model
            """,
            {
                "models": None if models is None else to_json(list(models)),
                "evicted": EVICTED,
                "at": at,
            },
        )
        return tuple(sorted({row["model"] for row in rows}))

    def last_failure_code(self, entry_id: int) -> str | None:
        """Return the code of an entry's last failure; its own row has forgotten it under work."""
        rows = self.query(
            """
            SELECT code FROM events
            WHERE model = (SELECT model FROM entries WHERE id = :id)
              AND entry_id = :id AND to_status = 'failed'
            ORDER BY id DESC LIMIT 1
            """,
            {"id": entry_id},
        )
        return rows[0]["code"] if rows else None

    def tell_waiting(self, reason: str | None) -> None:
        """Let what is queued say that it waits for room, or no more; its place stays."""
        if reason is None:
            self.execute(
                """
                UPDATE entries SET reason = NULL, code = NULL
                WHERE status = 'queued' AND code = 'no_space'
                """
            )
            return
        self.execute(
            """
            UPDATE entries SET reason = :reason, code = 'no_space'
            WHERE status = 'queued' AND reason IS NOT :reason
            """,
            {"reason": reason},
        )
