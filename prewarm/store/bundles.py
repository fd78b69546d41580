"""The table ``bundles``: which packed files answer which build key.

Owns the table's SQL. The files themselves are ``bundle.py``'s; what is no longer named is
``collect.py``'s.
"""

from __future__ import annotations

from dataclasses import dataclass

from prewarm.store.connection import Connection


@dataclass(frozen=True, slots=True)
class BundleRow:
    """A bundle that was built for a key. Equal content built for two keys has two rows."""

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
        at: str,
    ) -> BundleRow:
        """Record a bundle that was packed for a key; good again if it had been quarantined."""
        [row] = self.query(
            """
            INSERT INTO bundles (build_key, sha256, architecture, environment_id,
              size_bytes, unpacked_bytes, files, created_at)
            VALUES (:build_key, :sha256, :architecture, :environment_id,
              :size_bytes, :unpacked_bytes, :files, :at)
            ON CONFLICT (build_key, sha256) DO UPDATE SET
              created_at = excluded.created_at, quarantined_at = NULL, quarantine_reason = NULL
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
            },
        )
        return BundleRow(**row)

    def bundle_for_key(self, build_key: str) -> BundleRow | None:
        """Return the newest good bundle of a build key."""
        rows = self.query(
            """
            SELECT * FROM bundles WHERE build_key = :build_key AND quarantined_at IS NULL
            ORDER BY created_at DESC, rowid DESC LIMIT 1
            """,
            {"build_key": build_key},
        )
        return BundleRow(**rows[0]) if rows else None

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
        return BundleRow(**rows[0]) if rows else None

    def is_quarantined(self, sha256: str) -> bool:
        """Whether this bundle was found damaged and not packed anew since."""
        return bool(
            self.query(
                "SELECT 1 FROM bundles WHERE sha256 = :sha256 AND quarantined_at IS NOT NULL",
                {"sha256": sha256},
            )
        )

    def quarantine_bundle(self, sha256: str, *, reason: str, at: str) -> None:
        """Take a damaged bundle out of use, so that its key is built again."""
        self.execute(
            """
            UPDATE bundles SET quarantined_at = :at, quarantine_reason = :reason
            WHERE sha256 = :sha256 AND quarantined_at IS NULL
            """,
            {"sha256": sha256, "reason": reason, "at": at},
        )
