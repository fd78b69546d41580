"""A worker: takes queued entries of one device, one at a time, and brings each to rest.

Owns the loop of one thread: claim, hold the lease, process, publish, tell. What is to be done comes
from the ``JobBoard`` that the survey fills; the database decides who gets it. Each device has
workers that build, and one that only makes proofs, so that what needs no more does not wait behind
a long build; that nothing is timed beside something else is the turns' matter (``turns.py``).
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from prewarm.build.bench import Bench
from prewarm.build.device import Guard
from prewarm.build.holdups import Holdups
from prewarm.build.interrupted import Interrupted
from prewarm.build.job import Job
from prewarm.build.job_board import JobBoard
from prewarm.build.lease import LEASE_S, Lease
from prewarm.build.place import NeedsBuild
from prewarm.build.proof_room import with_room
from prewarm.build.publish import publish
from prewarm.build.resting import record_failure
from prewarm.build.room import room_for_build
from prewarm.build.scan_run import process_job
from prewarm.build.step import Step
from prewarm.config import Settings
from prewarm.errors import LostLease, NoSpace, PrewarmError
from prewarm.store.database import DATABASE_NAME, Database
from prewarm.store.entries import Entry
from prewarm.store.status import Status
from prewarm.store.timestamp import timestamp

#: How long a worker without work waits before it looks for retries that are due.
IDLE_S = 5.0
#: After an error that is not an entry's own (a full disk, a lost mount), the next try waits.
TROUBLE_S = 10.0


class Worker:
    """Works on the entries of one device until ``stop`` is set."""

    def __init__(
        self, name: str, bench: Bench, board: JobBoard, *, guard: Guard, holdups: Holdups
    ) -> None:
        self.name = name
        self._bench = bench
        self._board = board
        self._guard = guard
        self._holdups = holdups
        self._rests_until_s = 0.0
        self._ended: Step | None = None
        self._thread = threading.Thread(target=self._run, name=f"worker {name}", daemon=True)

    def start(self) -> None:
        """Begin to work in a thread of its own."""
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the work; tell whether it came."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def take(self, settings: Settings) -> None:
        """Work with other settings from the next entry on."""
        self._bench = replace(self._bench, settings=settings)

    @property
    def is_alive(self) -> bool:
        """Whether the thread still works; one that died is started anew."""
        return self._thread.is_alive()

    def _run(self) -> None:
        # A connection belongs to the thread that opened it.
        with Database(self._bench.settings.state_dir / DATABASE_NAME) as database:
            while not self._bench.stop.is_set():
                bench = replace(self._bench, database=database)
                try:
                    self._publish(bench)
                    job = self._claim(bench)
                    if job is None:
                        self._board.wait(IDLE_S)
                        continue
                    try:
                        self._work(bench, job)
                    finally:
                        self._guard.leave()
                except Interrupted:
                    break
                except PrewarmError as error:
                    self._holdups.trouble(error)
                    bench.stop.wait(TROUBLE_S)
                except OSError as error:
                    self._holdups.trouble(PrewarmError(f"{type(error).__name__}: {error}"))
                    bench.stop.wait(TROUBLE_S)

    def _claim(self, bench: Bench) -> Job | None:
        """Take the best job that may begin; the device's guard is entered with it."""
        jobs = self._jobs(bench)
        if not jobs:
            self._guard.step_aside()
            return None
        if not self._may_begin(bench):
            return None
        now_s = bench.now_s()
        try:
            entry = bench.database.claim(
                owner=self._thread.name,
                at=timestamp(now_s),
                lease_until=timestamp(now_s + LEASE_S),
                among=[job.entry_id for job in jobs],
            )
        except BaseException:
            self._guard.leave()
            raise
        if entry is None:
            self._guard.leave()
            return None
        job = next(job for job in jobs if job.entry_id == entry.id)
        return replace(job, lease=entry.lease)

    def _jobs(self, bench: Bench) -> tuple[Job, ...]:
        place = bench.place
        jobs = self._board.jobs_for(place.device.kind)
        if not place.proofs_only or not jobs:
            return jobs
        if time.monotonic() < self._rests_until_s:
            return ()
        peaks = bench.database.keys_with_bundle()
        jobs = self._board.proofs_for(place.device.kind, peaks)
        if not jobs or not place.turns.is_shared:
            return jobs
        return with_room(jobs, place.device, peaks=peaks)

    def _may_begin(self, bench: Bench) -> bool:
        """Enter the guard, unless there is no room or the guard is against it; that is told."""
        room = room_for_build(bench.settings, bench.database)
        against: PrewarmError | None = NoSpace(room) if room is not None else None
        if against is None:
            against = self._guard.enter(busy_percent=bench.settings.gpu_busy_percent)
        kind = bench.place.device.kind
        waiting = [job.entry_id for job in self._board.jobs_for(kind)]
        self._holdups.tell(self.name, against, bench.database, waiting)
        return against is None

    def _work(self, bench: Bench, job: Job) -> None:
        assert job.lease is not None
        started_s = time.monotonic()
        bench.report(Step(job.model, "begin"))
        ended = _EitherStop(bench.stop)
        own = replace(bench, stop=ended)
        state = bench.settings.state_dir / DATABASE_NAME
        try:
            with Lease(state, job.entry_id, job.lease, now_s=bench.now_s, lost=ended.set):
                entry = process_job(own, job)
        except NeedsBuild as error:
            _give_back(bench, job, str(error), error.code)
            self._board.put_back(job, needs_build=True)
            return
        except LostLease:
            # Whoever has it now brings it to rest.
            self._board.drop(job)
            return
        except (PrewarmError, OSError):
            _give_back(bench, job, "the work on it was interrupted", "interrupted")
            self._board.put_back(job)
            raise
        except Exception as error:
            # A fault of ours must not take the same entry again and again.
            entry = record_failure(bench, job, _internal(error), "internal")
        self._board.drop(job)
        took_s = time.monotonic() - started_s
        self._ended = _end(job, entry, took_s)
        if bench.place.proofs_only and bench.place.turns.is_shared:
            # A build that held still for a proof goes on for as long before the next.
            self._rests_until_s = time.monotonic() + took_s
        self._publish(bench)

    def _publish(self, bench: Bench) -> None:
        """Publish what came to rest, then tell of it; where that fails it is tried again."""
        if self._ended is not None:
            publish(bench)
            bench.report(self._ended)
            self._ended = None


class _EitherStop(threading.Event):
    """An event of one job that is also set when the whole run is to stop."""

    def __init__(self, run: threading.Event) -> None:
        super().__init__()
        self._run = run

    def is_set(self) -> bool:
        return super().is_set() or self._run.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        return self._run.wait(timeout) or super().is_set()


def _give_back(bench: Bench, job: Job, reason: str, code: str) -> None:
    """Queue an entry again whose work did not come to its end; no attempt is counted."""
    try:
        bench.move(job, Status.QUEUED, reason=reason, code=code)
    except LostLease:
        return


def _internal(error: Exception) -> str:
    return f"internal error: {type(error).__name__}: {' '.join(str(error).split())[:500]}"


def _end(job: Job, entry: Entry, seconds: float) -> Step:
    return Step(job.model, "end", entry.reason or "", outcome=entry.status.value, seconds=seconds)
