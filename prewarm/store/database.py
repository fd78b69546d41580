"""The builder's database, ``state_dir/prewarm.db``: all tables in one object.

Owns what concerns several tables at once. The SQL of each table stands in the file named for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from prewarm.store.builds import Builds
from prewarm.store.bundles import Bundles
from prewarm.store.checkpoints import Checkpoints
from prewarm.store.connection import to_json
from prewarm.store.entries import Entries, Entry
from prewarm.store.environments import Environments
from prewarm.store.events import Events
from prewarm.store.files import Files
from prewarm.store.pages import Pages
from prewarm.store.reports import Reports
from prewarm.store.requests import Requests
from prewarm.store.retries import Retries
from prewarm.store.status import PUBLISHED, Status
from prewarm.store.totals import Totalling

DATABASE_NAME = "prewarm.db"

#: Later than any lease.
_FOREVER = "9999-12-31T23:59:59.999Z"


class Database(
    Checkpoints,
    Entries,
    Builds,
    Bundles,
    Environments,
    Files,
    Events,
    Requests,
    Reports,
    Totalling,
    Retries,
    Pages,
):
    """An open ``prewarm.db``; see ``connection.py`` for what opening it may raise."""

    def retire_missing(self, present_names: Iterable[str], *, at: str) -> tuple[str, ...]:
        """Retire checkpoints that a scan no longer found, and their entries that nobody works on.

        An entry under work fails by itself when its files are gone; the next scan retires it.
        """
        names = tuple(present_names)
        with self.transaction():
            gone = self._retire_checkpoints(names, at=at)
            gone |= self._retire_entries(names, at=at)
        return tuple(sorted(gone))

    def release_dead(self, at: str) -> tuple[Entry, ...]:
        """Queue again what dead workers held: their lease is over, or they had none.

        Work without a lease is that of a foreground scan; call this only with the lock of the state
        directory in hand, when no other scan can be alive. No attempt is counted.
        """
        return self._release(at=at, until=at)

    def release_all(self, at: str) -> tuple[Entry, ...]:
        """Queue again all that is under work, whatever its lease: nobody who held one is alive.

        Only for whoever has just taken the lock of the state directory.
        """
        released = self._release(at=at, until=_FOREVER)
        self._interrupt_all_builds(at=at)
        return released

    def _release(self, *, at: str, until: str) -> tuple[Entry, ...]:
        with self.transaction():
            released = self._release_entries(at=at, until=until)
            self._interrupt_builds((entry.id for entry in released), at=at)
        return released

    def forget_retired(self, *, before: str, most: int) -> int:
        """Forget entries that were retired before this time and the oldest over ``most``.

        With their events and builds, and checkpoints without an entry that are gone. Their bundles
        are known by themselves, so one that comes back is proven, not built. Return how many.
        """
        with self.transaction():
            rows = self.query(
                """
                SELECT id FROM entries WHERE status = 'retired' AND (updated_at < :before OR id IN (
                  SELECT id FROM entries WHERE status = 'retired'
                  ORDER BY updated_at DESC, id DESC LIMIT -1 OFFSET :most
                ))
                """,
                {"before": before, "most": most},
            )
            going = {"ids": to_json([row["id"] for row in rows])}
            for statement in (
                "DELETE FROM events WHERE entry_id IN (SELECT value FROM json_each(:ids))",
                "DELETE FROM builds WHERE entry_id IN (SELECT value FROM json_each(:ids))",
                "DELETE FROM entries WHERE id IN (SELECT value FROM json_each(:ids))",
            ):
                self.execute(statement, going)
            self.execute(
                """
                DELETE FROM checkpoints
                WHERE retired_at IS NOT NULL AND name NOT IN (SELECT model FROM entries)
                """
            )
        return len(rows)

    def quarantine(self, sha256: str, *, reason: str, at: str) -> tuple[Entry, ...]:
        """Take a bundle out of use and queue the entries that were published from it; return them.

        One under work is left to whoever works on it, and so is one that rests for a reason of its
        own.
        """
        queued = []
        with self.transaction():
            self._quarantine_bundle(sha256, reason=reason, at=at)
            for entry in self.entries_on(sha256):
                if entry.status in PUBLISHED:
                    self.move(entry.id, Status.STALE, at=at, reason=reason, code="quarantined")
                elif entry.status is not Status.STALE:
                    continue
                queued.append(
                    self.move(entry.id, Status.QUEUED, at=at, reason=reason, code="quarantined")
                )
        return tuple(queued)
