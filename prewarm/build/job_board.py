"""The board between the survey and the workers: the jobs that are known, and a bell for news.

The database decides who works on what; the board only keeps what the survey found out about each
queued entry, in the order of ``queue.py``. Safe to use from several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from prewarm.build.job import Job


class JobBoard:
    """The jobs that wait, best first."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._news = threading.Condition()

    def post(self, jobs: Iterable[Job]) -> None:
        """Put the jobs up in this order in place of those that are there, and ring the bell."""
        with self._news:
            self._jobs = {job.entry_id: job for job in jobs}
            self._news.notify_all()

    def drop(self, job: Job) -> None:
        """Take a job down that is done, unless a newer one of its entry was put up meanwhile."""
        with self._news:
            present = self._jobs.get(job.entry_id)
            if present is not None and present.digest == job.digest:
                del self._jobs[job.entry_id]

    def jobs(self) -> tuple[Job, ...]:
        """Return all jobs, best first."""
        with self._news:
            return tuple(self._jobs.values())

    def jobs_for(self, device: str) -> tuple[Job, ...]:
        """Return the jobs of one kind of device, best first."""
        return tuple(job for job in self.jobs() if job.declaration.model.device == device)

    def ring(self) -> None:
        """Wake whoever waits: a retry is due, or the run is to stop."""
        with self._news:
            self._news.notify_all()

    def wait(self, timeout_s: float) -> None:
        """Wait for news, at most this long."""
        with self._news:
            self._news.wait(timeout_s)
