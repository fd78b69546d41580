"""The size of ``prewarm.db`` on disk: what is forgotten gives its room back.

Owns the pages that are free inside the file, and the write-ahead log beside it. A database is made
with ``auto_vacuum = INCREMENTAL`` (``connection.py``); one of an earlier version is rewritten once.
"""

from __future__ import annotations

from prewarm.store.connection import Connection

#: As much stays free for what is written next.
SPARE_BYTES = 1 << 20

#: Given back in one transaction, so that nobody waits long for the write lock.
_STEP_PAGES = 256

_INCREMENTAL = 2


class Pages(Connection):
    """Gives room back."""

    def reclaim(self) -> int:
        """Give the free pages over ``SPARE_BYTES`` back to the disk; return how many bytes.

        Also folds the write-ahead log in, as far as no reader holds it; nobody is waited for.
        """
        before = self._pragma("page_count")
        size_bytes = self._pragma("page_size")
        spare = SPARE_BYTES // size_bytes
        if self._pragma("auto_vacuum") != _INCREMENTAL and self._pragma("freelist_count") > spare:
            self.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self.execute("VACUUM")
        while (over := self._pragma("freelist_count") - spare) > 0:
            self.run_through(f"PRAGMA incremental_vacuum({min(over, _STEP_PAGES)})")
        self.run_through("PRAGMA wal_checkpoint(PASSIVE)")
        return (before - self._pragma("page_count")) * size_bytes
