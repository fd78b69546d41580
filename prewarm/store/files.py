"""The table ``files``: digests of registry files and bundles, so that no scan reads 100 GB again.

Owns the table's SQL. A digest holds while size, times and inode are what they were.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prewarm.store.connection import Connection, to_json


class Files(Connection):
    """Reads and writes the table ``files``."""

    def file_digest(
        self, path: Path | str, *, size_bytes: int, mtime_ns: int, ctime_ns: int, inode: int
    ) -> str | None:
        """Return the digest of a file that has not changed since it was read."""
        rows = self.query(
            """
            SELECT digest FROM files WHERE path = :path AND size_bytes = :size_bytes
              AND mtime_ns = :mtime_ns AND ctime_ns = :ctime_ns AND inode = :inode
            """,
            {
                "path": str(path),
                "size_bytes": size_bytes,
                "mtime_ns": mtime_ns,
                "ctime_ns": ctime_ns,
                "inode": inode,
            },
        )
        return rows[0]["digest"] if rows else None

    def put_file_digest(
        self,
        path: Path | str,
        *,
        size_bytes: int,
        mtime_ns: int,
        ctime_ns: int,
        inode: int,
        digest: str,
    ) -> None:
        """Record the digest of a file as it is now."""
        self.execute(
            """
            INSERT INTO files (path, size_bytes, mtime_ns, ctime_ns, inode, digest)
            VALUES (:path, :size_bytes, :mtime_ns, :ctime_ns, :inode, :digest)
            ON CONFLICT (path) DO UPDATE SET size_bytes = excluded.size_bytes,
              mtime_ns = excluded.mtime_ns, ctime_ns = excluded.ctime_ns,
              inode = excluded.inode, digest = excluded.digest
            """,
            {
                "path": str(path),
                "size_bytes": size_bytes,
                "mtime_ns": mtime_ns,
                "ctime_ns": ctime_ns,
                "inode": inode,
                "digest": digest,
            },
        )

    def forget_file(self, path: Path | str) -> None:
        """Let the next who asks for the digest of a file read it."""
        self.execute("DELETE FROM files WHERE path = :path", {"path": str(path)})

    def forget_files(self, paths: Iterable[str]) -> None:
        """Forget the digests of files that are gone."""
        self.execute(
            "DELETE FROM files WHERE path IN (SELECT value FROM json_each(:paths))",
            {"paths": to_json(list(paths))},
        )
