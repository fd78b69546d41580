"""The lease of a claimed entry, renewed by a thread while the work goes on.

A worker that cannot renew has lost the entry: its work is asked to stop, and nothing it does then
is recorded, since every move names the lease.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from prewarm.errors import LostLease, PrewarmError
from prewarm.store.database import Database
from prewarm.store.timestamp import timestamp

#: A dead worker's entry is given back after this long.
LEASE_S = 60.0
#: Three renewals may fail before the lease is over.
RENEW_S = 15.0


class Lease:
    """Holds the lease of one entry while it is entered; ``lost`` calls whoever works on it."""

    def __init__(
        self,
        state: Path,
        entry_id: int,
        token: str,
        *,
        now_s: Callable[[], float],
        lost: Callable[[], None],
    ) -> None:
        self._state = state
        self._entry_id = entry_id
        self._token = token
        self._now_s = now_s
        self._lost = lost
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def __enter__(self) -> Lease:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _renew(self) -> None:
        while not self._over.wait(RENEW_S):
            try:
                with Database(self._state) as database:
                    until = timestamp(self._now_s() + LEASE_S)
                    database.renew(self._entry_id, self._token, until=until)
            except LostLease:
                self._lost()
                return
            except PrewarmError:
                # A full disk, say; the next renewal may come through before the lease is over.
                continue
