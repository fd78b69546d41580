"""What waits for a word, for its time or for room: moves of many entries at once.

Owns the SQL of ``prewarm retry``, of eviction, of retiring, and of the reason why nothing begins.
Each is one guarded UPDATE, so it needs no lock beside a daemon at work.
"""

from __future__ import annotations

from collections.abc import Iterable

from prewarm.store.connection import Connection, to_json
from prewarm.store.status import WORKING, Status, sources

#: Codes of an entry that rests though its checkpoint is there, until somebody asks for it: its
#: bundle left the manifest for want of room, or since nobody used it.
EVICTED = frozenset({"evicted", "unused"})


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
              AND (status = 'failed' OR (status = 'stale' AND code IN ('evicted', 'unused'))
                OR (status = 'queued' AND next_try_at IS NOT NULL))
            RETURNING model
            """,
            {
                "models": None if models is None else to_json(list(models)),
                "at": at,
            },
        )
        return tuple(sorted({row["model"] for row in rows}))

    def evict(self, sha256: str, *, reason: str, code: str, at: str) -> tuple[str, ...]:
        """Take the entries that are published from a bundle out of the manifest; return the models.

        Their record stays, so that it is known what they took; the bundle is theirs no more.
        """
        rows = self.query(
            """
            UPDATE entries SET status = 'stale', reason = :reason || model || '`', code = :code,
              bundle_sha256 = NULL, updated_at = :at
            WHERE bundle_sha256 = :sha256 AND status IN ('warm', 'partial')
            RETURNING model
            """,
            {
                "sha256": sha256,
                "reason": f"{reason}; build it again with `prewarm retry ",
                "code": code,
                "at": at,
            },
        )
        return tuple(sorted(row["model"] for row in rows))

    def readmit(self, entry_id: int, *, at: str) -> bool:
        """Queue an entry that was evicted for want of room; tell whether it still rested so."""
        rows = self.query(
            """
            UPDATE entries SET status = 'queued', reason = NULL, code = NULL, attempts = 0,
              next_try_at = NULL, updated_at = :at
            WHERE id = :id AND status = 'stale' AND code = 'evicted' RETURNING id
            """,
            {"id": entry_id, "at": at},
        )
        return bool(rows)

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

    def next_try_at(self, *, after: str) -> str | None:
        """Return when the first of those that failed is tried again after this time, if any is.

        One that was due before, of an environment that is gone say, is nobody's to try.
        """
        [row] = self.query(
            """
            SELECT min(next_try_at) AS at FROM entries
            WHERE status = 'failed' AND next_try_at > :after
            """,
            {"after": after},
        )
        at: str | None = row["at"]
        return at

    def put_off(self, entry_id: int, next_try_at: str) -> None:
        """Let what failed before its work could begin be tried again then; that is no event."""
        self.execute(
            "UPDATE entries SET next_try_at = :at WHERE id = :id AND status = 'failed'",
            {"id": entry_id, "at": next_try_at},
        )

    def tell_waiting(self, reason: str | None, *, code: str | None, among: Iterable[int]) -> None:
        """Let those of ``among`` that are queued say why none begins, or no more; places stay."""
        ids = to_json(list(among))
        if reason is None:
            self.execute(
                """
                UPDATE entries SET reason = NULL, code = NULL
                WHERE status = 'queued' AND code IN ('no_space', 'gpu_busy', 'gpu_choice')
                  AND id IN (SELECT value FROM json_each(:ids))
                """,
                {"ids": ids},
            )
            return
        self.execute(
            """
            UPDATE entries SET reason = :reason, code = :code
            WHERE status = 'queued' AND reason IS NOT :reason
              AND id IN (SELECT value FROM json_each(:ids))
            """,
            {"reason": reason, "code": code, "ids": ids},
        )

    def _retire_entries(self, present_names: Iterable[str], *, at: str) -> set[str]:
        resting = set(sources(Status.RETIRED)) - WORKING - {Status.RETIRED}
        rows = self.query(
            """
            UPDATE entries SET status = 'retired', code = 'checkpoint_gone', updated_at = :at,
              reason = 'the checkpoint is gone from the registry, or left out', next_try_at = NULL
            WHERE model NOT IN (SELECT value FROM json_each(:present))
              AND status IN (SELECT value FROM json_each(:resting))
            RETURNING model
            """,
            {
                "present": to_json(list(present_names)),
                "resting": to_json(sorted(resting)),
                "at": at,
            },
        )
        return {row["model"] for row in rows}
