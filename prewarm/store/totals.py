"""Totals over the tables, for whoever watches the builder from outside.

Owns the counting SQL over several tables; no row is read whole, so that it stays cheap with any
number of entries.
"""

from __future__ import annotations

from dataclasses import dataclass

from prewarm.store.connection import Connection
from prewarm.store.status import Status


@dataclass(frozen=True, slots=True)
class Totals:
    """How much there is of everything at one moment.

    ``builds`` counts all that ever ended, by outcome; ``bundle_bytes`` is the size of what entries
    that are published stand on, a shared bundle once.
    """

    entries: dict[Status, int]
    builds: dict[str, int]
    bundles: int
    bundle_bytes: int
    requests: int


class Totalling(Connection):
    """Counts over the tables."""

    def totals(self, at: str) -> Totals:
        """Return the totals; every status is there, with 0 where no entry has it."""
        entries = self.query("SELECT status, count(*) AS n FROM entries GROUP BY status")
        builds = self.query(
            """
            SELECT outcome, sum(n) AS n FROM (
              SELECT outcome, count(*) AS n FROM builds WHERE outcome IS NOT NULL GROUP BY outcome
              UNION ALL
              SELECT outcome, count AS n FROM forgotten_builds
            ) GROUP BY outcome
            """
        )
        [bundles] = self.query(
            """
            SELECT count(*) AS n, coalesce(sum(size_bytes), 0) AS size_bytes FROM (
              SELECT DISTINCT sha256, size_bytes FROM bundles WHERE sha256 IN (
                SELECT bundle_sha256 FROM entries WHERE status IN ('warm', 'partial')
              )
            )
            """
        )
        [requests] = self.query("SELECT count(*) AS n FROM requests WHERE until > :at", {"at": at})
        return Totals(
            entries=dict.fromkeys(Status, 0) | {Status(row["status"]): row["n"] for row in entries},
            builds={row["outcome"]: row["n"] for row in builds},
            bundles=bundles["n"],
            bundle_bytes=bundles["size_bytes"],
            requests=requests["n"],
        )
