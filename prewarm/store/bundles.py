"""The table ``bundles``: which packed files answer which build key.

Owns the table's SQL. The files themselves are ``bundle.py``'s; what is no longer named is
``collect.py``'s.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from prewarm.store.connection import Connection, Row, to_json

#: Rows of what was set aside; their files are bounded by themselves (``quarantine.py``).
MOST_QUARANTINED = 200


@dataclass(frozen=True, slots=True)
class BundleRow:
    """A bundle that was built for a key. Equal content built for two keys has two rows.

    ``record`` is the manifest entry of the first that was proven from it, less model and aliases.
    """

    build_key: str
    sha256: str
    architecture: str
    environment_id: str
    size_bytes: int
    unpacked_bytes: int
    files: int
    created_at: str
    quarantined_at: str | None
    quarantine_reason: str | None
    record: dict[str, Any] | None


class Bundles(Connection):
    """Reads and writes the table ``bundles``."""

    def add_bundle(
        self,
        sha256: str,
        *,
        build_key: str,
        architecture: str,
        environment_id: str,
        size_bytes: int,
        unpacked_bytes: int,
        files: int,
        record: Mapping[str, object] | None,
        at: str,
    ) -> BundleRow:
        """Record a bundle that was packed for a key; good again if it had been quarantined."""
        [row] = self.query(
            """
            INSERT INTO bundles (build_key, sha256, architecture, environment_id,
              size_bytes, unpacked_bytes, files, created_at, record)
            VALUES (:build_key, :sha256, :architecture, :environment_id,
              :size_bytes, :unpacked_bytes, :files, :at, :record)
            ON CONFLICT (build_key, sha256) DO UPDATE SET
              created_at = excluded.created_at, record = excluded.record,
              quarantined_at = NULL, quarantine_reason = NULL
            RETURNING *
            """,
            {
                "build_key": build_key,
                "sha256": sha256,
                "architecture": architecture,
                "environment_id": environment_id,
                "size_bytes": size_bytes,
                "unpacked_bytes": unpacked_bytes,
                "files": files,
                "at": at,
                "record": None if record is None else to_json(record),
            },
        )
        return _bundle(row)

    def bundles_for_key(self, build_key: str) -> tuple[BundleRow, ...]:
        """Return the good bundles of a build key, newest first."""
        rows = self.query(
            """
            SELECT * FROM bundles WHERE build_key = :build_key AND quarantined_at IS NULL
            ORDER BY created_at DESC, rowid DESC
            """,
            {"build_key": build_key},
        )
        return tuple(_bundle(row) for row in rows)

    def keys_with_bundle(self) -> dict[str, int | None]:
        """Return the build keys of good bundles, each with the memory that its builds took."""
        rows = self.query(
            """
            SELECT bundles.build_key, max(builds.peak_memory_bytes) AS peak
            FROM bundles LEFT JOIN builds ON builds.build_key = bundles.build_key
            WHERE quarantined_at IS NULL AND record IS NOT NULL
            GROUP BY bundles.build_key
            """
        )
        return {row["build_key"]: row["peak"] for row in rows}

    def nearest_bundle(self, architecture: str, environment_id: str) -> BundleRow | None:
        """Return the newest good bundle of an architecture here: where a new build starts from."""
        rows = self.query(
            """
            SELECT * FROM bundles WHERE architecture = :architecture
              AND environment_id = :environment_id AND quarantined_at IS NULL
            ORDER BY created_at DESC, rowid DESC LIMIT 1
            """,
            {"architecture": architecture, "environment_id": environment_id},
        )
        return _bundle(rows[0]) if rows else None

    def largest_bundle(self) -> tuple[int, int]:
        """Return the packed and the unpacked size of the largest bundles known; 0 without any."""
        [row] = self.query(
            """
            SELECT coalesce(max(size_bytes), 0) AS packed,
              coalesce(max(unpacked_bytes), 0) AS unpacked FROM bundles
            """
        )
        return row["packed"], row["unpacked"]

    def forget_bundles(self, sha256s: Iterable[str]) -> None:
        """Forget bundles whose files are gone, so that no build looks for them."""
        self.execute(
            "DELETE FROM bundles WHERE sha256 IN (SELECT value FROM json_each(:sha256s))",
            {"sha256s": to_json(list(sha256s))},
        )

    def forget_quarantined(self, *, before: str, most: int = MOST_QUARANTINED) -> int:
        """Forget what was set aside before this time and the oldest over ``most``; return how many.

        None that an entry still names, whose next look tells why it is of no use.
        """
        rows = self.query(
            """
            DELETE FROM bundles
            WHERE quarantined_at IS NOT NULL
              AND (quarantined_at < :before OR rowid IN (
                SELECT rowid FROM bundles WHERE quarantined_at IS NOT NULL
                ORDER BY quarantined_at DESC, rowid DESC LIMIT -1 OFFSET :most
              ))
              AND sha256 NOT IN (SELECT bundle_sha256 FROM entries WHERE bundle_sha256 IS NOT NULL)
            RETURNING sha256
            """,
            {"before": before, "most": most},
        )
        return len(rows)

    def is_quarantined(self, sha256: str, build_key: str) -> bool:
        """Whether this bundle was set aside and not packed anew for this key since."""
        return bool(
            self.query(
                """
                SELECT 1 FROM bundles WHERE sha256 = :sha256 AND build_key = :build_key
                  AND quarantined_at IS NOT NULL
                """,
                {"sha256": sha256, "build_key": build_key},
            )
        )

    def quarantined_bundles(self) -> tuple[BundleRow, ...]:
        """Return the bundles that are of use for no key any more."""
        rows = self.query(
            """
            SELECT * FROM bundles
            WHERE sha256 NOT IN (SELECT sha256 FROM bundles WHERE quarantined_at IS NULL)
            ORDER BY quarantined_at, rowid
            """
        )
        return tuple(_bundle(row) for row in rows)

    def keys_of_bundle(self, sha256: str) -> tuple[str, ...]:
        """Return the build keys that a bundle was built for, oldest first."""
        rows = self.query(
            "SELECT build_key FROM bundles WHERE sha256 = :sha256 ORDER BY rowid",
            {"sha256": sha256},
        )
        return tuple(row["build_key"] for row in rows)

    def _quarantine_bundle(self, sha256: str, *, reason: str, at: str) -> None:
        self.execute(
            """
            UPDATE bundles SET quarantined_at = :at, quarantine_reason = :reason
            WHERE sha256 = :sha256 AND quarantined_at IS NULL
            """,
            {"sha256": sha256, "reason": reason, "at": at},
        )


def _bundle(row: Row) -> BundleRow:
    record = row["record"]
    return BundleRow(**{**row, "record": None if record is None else json.loads(record)})
