"""The bench: what all work of a run is done with, and what the children of one entry share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prewarm.build.asking import Desk
from prewarm.build.job import Job
from prewarm.build.place import Place
from prewarm.build.step import Reporter, Step
from prewarm.build.telling import progress_detail
from prewarm.build.workspace import Workspace
from prewarm.config import Settings
from prewarm.store.database import Database
from prewarm.store.entries import Entry
from prewarm.store.status import Status
from prewarm.store.timestamp import timestamp


@dataclass(frozen=True, slots=True)
class Bench:
    """What the pipeline works with; the same for all entries of a run."""

    settings: Settings
    database: Database
    workspace: Workspace
    copy: Path
    stop: threading.Event
    report: Reporter
    now_s: Callable[[], float] = time.time
    place: Place = field(default_factory=Place)
    #: Called for each piece of a long read.
    pulse: Callable[[], None] = field(default=lambda: None)

    def at(self) -> str:
        """Return the present time as text."""
        return timestamp(self.now_s())

    def move(self, job: Job, to: Status, **fields: Any) -> Entry:
        """Move a job's entry under the job's own lease.

        Raises:
            LostLease: the entry was given to somebody else, or may not move there.
        """
        return self.database.move(job.entry_id, to, at=self.at(), lease=job.lease, **fields)

    def say(self, job: Job, what: str, detail: str = "") -> None:
        """Tell whoever shows the work what happens to a job now."""
        self.report(Step(job.model, what, detail))

    def reading(self, model: str) -> Callable[[], None]:
        """Return what is called for each piece that is read of a checkpoint; the first is told."""
        untold = iter((Step(model, "digest", "reading the checkpoint"),))

        def read() -> None:
            for step in untold:
                self.report(step)
            self.pulse()

        return read

    def desk(self, job: Job, log: Path) -> Desk:
        """Return what every child of a job is started with."""
        return Desk(
            declaration=job.declaration,
            checkpoint=job.checkpoint.path,
            copy=self.copy,
            log=log,
            memory_bytes=self.settings.child_memory_bytes,
            stop=self.stop,
            place=self.place,
            progress=lambda told: self.say(job, str(told.get("step", "")), progress_detail(told)),
        )
