"""A look at the registry by the daemon: what is there becomes entries and jobs on the board.

Owns one look, from the scan to the board; when to look is the watcher's. A checkpoint that is
missing is retired only where that can be told (``presence``).
"""

from __future__ import annotations

import math

from prewarm.build.adopt import adopt
from prewarm.build.bench import Bench
from prewarm.build.job import Job
from prewarm.build.job_board import JobBoard
from prewarm.build.publish import publish
from prewarm.build.quarantine import mend
from prewarm.build.queue import in_order
from prewarm.build.retry import is_due
from prewarm.build.run import registry_of
from prewarm.build.survey import Survey, Surveyor
from prewarm.registry.presence import Presence, registry_is_there
from prewarm.registry.scan import scan_registry
from prewarm.registry.scan_memory import ScanMemory
from prewarm.store.entries import Entry
from prewarm.store.root_seen import remember_root, untold
from prewarm.store.timestamp import epoch_seconds


class Looker:
    """Looks at the registry for as long as the daemon lives."""

    def __init__(self, bench: Bench, board: JobBoard) -> None:
        self._bench = bench
        self._board = board
        self._memory = ScanMemory()
        self._surveyor = Surveyor(bench, self._is_due)
        self._took_over = False

    def forget_environments(self) -> None:
        """Gather the facts of each interpreter anew at the next look: packages may have changed."""
        self._surveyor = Surveyor(self._bench, self._is_due)

    def look(self, presence: Presence) -> Survey | None:
        """Bring entries and board to what the registry holds; None while it is not there.

        Raises:
            PrewarmError: the look could not be finished; the next one begins anew.
        """
        bench = self._bench
        if not self._took_over:
            # Before anything is written: what is published must not leave for want of a look back.
            adopt(bench)
            mend(bench)
            self._took_over = True
        if not presence.is_there:
            return None
        registry, settle_s = registry_of(bench.settings), bench.settings.settle_s
        # A worker that died, or could not write that it gives back, let its lease run out.
        bench.database.release_dead(bench.at())
        found = scan_registry(registry, settle_s=settle_s, now_s=bench.now_s(), memory=self._memory)
        survey = self._surveyor.survey(found)
        # The disk may have gone during the look.
        after = registry_is_there(registry, presence.seen)
        if after.is_there:
            names = [item.checkpoint.name for item in found]
            kept = [*names, *untold(bench.database, after)]
            bench.database.retire_missing(kept, at=bench.at())
            remember_root(bench.settings.state_dir, after)
        self.order(survey.jobs)
        publish(bench)
        return survey

    def order(self, jobs: tuple[Job, ...]) -> None:
        """Put jobs on the board, what deployments wait for before the rest."""
        database = self._bench.database
        awaited = {row.model for row in database.live_requests(self._bench.at())}
        keys = database.keys_with_bundle().keys()
        has_bundle = {job.entry_id for job in jobs if not job.keys.isdisjoint(keys)}
        self._board.post(in_order(jobs, awaited=awaited, has_bundle=has_bundle))

    def again_in_s(self, survey: Survey) -> float:
        """Return in how many seconds to look again though nothing is heard, ``inf`` for never.

        Where something is still written, and when the first that failed is tried again.
        """
        waits_s = [self._bench.settings.settle_s] if survey.settling else []
        if due := self._bench.database.next_try_at(after=self._bench.at()):
            waits_s.append(max(0.0, epoch_seconds(due) - self._bench.now_s()))
        return min(waits_s, default=math.inf)

    def _is_due(self, entry: Entry, job: Job) -> bool:
        return is_due(entry, job, self._bench.at())
