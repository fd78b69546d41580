"""The board between the survey and the workers: the jobs that are known, and a bell for news.

The database decides who works on what; the board only keeps what the survey found out about each
queued entry, in the order of ``queue.py``. Safe to use from several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable

from prewarm.build.job import Job


class JobBoard:
    """The jobs that wait, best first."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        #: Jobs whose bundle turned out to be of no use; by entry, the digest that was tried.
        self._to_build: dict[int, str] = {}
        #: What is asked for at each turn takes a while to make.
        self._keys: dict[int, tuple[Job, frozenset[str]]] = {}
        #: Jobs that were given back since the last look: it may have begun while they were at work.
        self._returned: dict[int, Job] = {}
        self._news = threading.Condition()

    def post(self, jobs: Iterable[Job]) -> None:
        """Put the jobs up in this order in place of those that are there, and ring the bell."""
        with self._news:
            self._jobs = {job.entry_id: job for job in jobs}
            for entry, job in self._returned.items():
                self._jobs.setdefault(entry, job)
            self._returned = {}
            self._to_build = {
                entry: digest for entry, digest in self._to_build.items() if entry in self._jobs
            }
            self._keys = {
                entry: known for entry, known in self._keys.items() if entry in self._jobs
            }
            self._news.notify_all()

    def drop(self, job: Job) -> None:
        """Take a job down that is done, unless a newer one of its entry was put up meanwhile."""
        with self._news:
            present = self._jobs.get(job.entry_id)
            if present is not None and present.digest == job.digest:
                del self._jobs[job.entry_id]
            self._returned.pop(job.entry_id, None)

    def jobs(self) -> tuple[Job, ...]:
        """Return all jobs, best first."""
        with self._news:
            return tuple(self._jobs.values())

    def jobs_for(self, device: str) -> tuple[Job, ...]:
        """Return the jobs of one kind of device, best first."""
        return tuple(job for job in self.jobs() if job.declaration.model.device == device)

    def proofs_for(self, device: str, keys: Collection[str]) -> tuple[Job, ...]:
        """Return the jobs of a kind of device that may need no more than a proof, best first.

        ``keys`` are the build keys of which there is a bundle.
        """
        return tuple(
            job
            for job in self.jobs_for(device)
            if self._to_build.get(job.entry_id) != job.digest
            and not self._keys_of(job).isdisjoint(keys)
        )

    def _keys_of(self, job: Job) -> frozenset[str]:
        known = self._keys.get(job.entry_id)
        if known is None or known[0] is not job:
            known = (job, job.keys)
            self._keys[job.entry_id] = known
        return known[1]

    def put_back(self, job: Job, *, needs_build: bool = False) -> None:
        """Put a job up again that was given back; ``needs_build`` if no bundle there is of use.

        A look meanwhile saw it under work and took it down, and none need come for a long time.
        """
        with self._news:
            if needs_build:
                self._to_build[job.entry_id] = job.digest
            self._returned[job.entry_id] = job
            self._jobs.setdefault(job.entry_id, job)
            self._news.notify_all()

    def ring(self) -> None:
        """Wake whoever waits: a retry is due, or the run is to stop."""
        with self._news:
            self._news.notify_all()

    def wait(self, timeout_s: float) -> None:
        """Wait for news, at most this long."""
        with self._news:
            self._news.wait(timeout_s)
