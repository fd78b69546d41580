"""Why the workers of one kind of device cannot begin: told where people look, once it is news.

What is queued says it as its reason (``prewarm status``), the log says it when it begins. While one
worker can begin, or is at work, the queue moves and nothing is told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from prewarm.errors import PrewarmError
from prewarm.store.database import Database


class Holdups:
    """What holds up each worker of a kind; safe to use from several threads."""

    def __init__(self, workers: Iterable[str], trouble: Callable[[PrewarmError], None]) -> None:
        self._reasons: dict[str, PrewarmError | None] = dict.fromkeys(workers)
        #: Tells of an error that is nobody's own.
        self.trouble = trouble
        self._told: bool | None = None  # not known yet what an earlier run told
        self._lock = threading.Lock()

    def tell(
        self, worker: str, reason: PrewarmError | None, database: Database, entry_ids: list[int]
    ) -> None:
        """Note what holds up a worker, None if nothing; ``entry_ids`` are what its kind may take.

        Of others than ``workers`` nothing is told: they are held up by the same.

        Raises:
            PrewarmError: the database cannot be written.
        """
        with self._lock:
            if worker not in self._reasons:
                return
            self._reasons[worker] = reason
            held = self._together()
            if held is None and self._told is False:
                return
            database.tell_waiting(
                None if held is None else str(held),
                code=None if held is None else held.code,
                among=entry_ids,
            )
            is_news = held is not None and not self._told
            self._told = held is not None
        if is_news and held is not None:
            self.trouble(held)

    def _together(self) -> PrewarmError | None:
        reasons = list(self._reasons.values())
        if not reasons or None in reasons:
            return None
        told = {str(reason): reason for reason in reasons if reason is not None}
        first = next(iter(told.values()))
        return PrewarmError("; ".join(told), code=first.code)
