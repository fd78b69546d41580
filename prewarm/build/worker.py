"""A worker: takes queued entries of one device, one at a time, and brings each to rest.

Owns the loop of one thread: claim, hold the lease, process, publish, tell. What is to be done comes
from the ``JobBoard`` that the survey fills; the database decides who gets it. Nothing is timed
beside something else on the same device, since each device has one worker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from prewarm.build.bench import Bench
from prewarm.build.child import Interrupted
from prewarm.build.job import Job
from prewarm.build.job_board import JobBoard
from prewarm.build.lease import LEASE_S, Lease
from prewarm.build.publish import publish
from prewarm.build.resting import record_failure
from prewarm.build.room import room_for_build
from prewarm.build.scan_run import process_job
from prewarm.build.step import Step
from prewarm.errors import LostLease, NoSpace, PrewarmError
from prewarm.store.database import DATABASE_NAME, Database
from prewarm.store.entries import Entry
from prewarm.store.status import Status
from prewarm.store.timestamp import timestamp

#: How long a worker without work waits before it looks for retries that are due.
IDLE_S = 5.0
#: After an error that is not an entry's own (a full disk, a lost mount), the next try waits.
TROUBLE_S = 10.0

Trouble = Callable[[PrewarmError], None]


class Worker:
    """Works on the entries of one device until ``stop`` is set."""

    def __init__(self, device: str, bench: Bench, board: JobBoard, trouble: Trouble) -> None:
        self.device = device
        self._bench = bench
        self._board = board
        self._trouble = trouble
        self._waits: bool | None = None  # not known yet what an earlier run told
        self._thread = threading.Thread(target=self._run, name=f"worker {device}", daemon=True)

    def start(self) -> None:
        """Begin to work in a thread of its own."""
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the work; tell whether it came."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def take(self, bench: Bench) -> None:
        """Work with other settings from the next entry on."""
        self._bench = bench

    @property
    def is_alive(self) -> bool:
        """Whether the thread still works; one that died is started anew by the daemon."""
        return self._thread.is_alive()

    def _run(self) -> None:
        # A connection belongs to the thread that opened it.
        with Database(self._bench.settings.state_dir / DATABASE_NAME) as database:
            while not self._bench.stop.is_set():
                bench = replace(self._bench, database=database)
                try:
                    job = self._claim(bench)
                    if job is None:
                        self._board.wait(IDLE_S)
                        continue
                    self._work(bench, job)
                except Interrupted:
                    break
                except PrewarmError as error:
                    self._trouble(error)
                    bench.stop.wait(TROUBLE_S)
                except OSError as error:
                    self._trouble(PrewarmError(f"{type(error).__name__}: {error}"))
                    bench.stop.wait(TROUBLE_S)

    def _claim(self, bench: Bench) -> Job | None:
        jobs = self._board.jobs_for(self.device)
        if not jobs or not self._has_room(bench):
            return None
        now_s = bench.now_s()
        entry = bench.database.claim(
            owner=f"{threading.current_thread().name}",
            at=timestamp(now_s),
            lease_until=timestamp(now_s + LEASE_S),
            among=[job.entry_id for job in jobs],
        )
        if entry is None:
            return None
        job = next(job for job in jobs if job.entry_id == entry.id)
        return replace(job, lease=entry.lease)

    def _has_room(self, bench: Bench) -> bool:
        """Tell whether a build may begin; what waits for room says so, once it begins or ends."""
        reason = room_for_build(bench.settings, bench.database)
        if reason is not None or self._waits is not False:
            bench.database.tell_waiting(reason)
        if reason is not None and not self._waits:
            self._trouble(NoSpace(reason))
        self._waits = reason is not None
        return not self._waits

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
        except LostLease:
            # Whoever has it now brings it to rest.
            self._board.drop(job)
            return
        except (PrewarmError, OSError):
            _give_back(bench, job)
            raise
        except Exception as error:
            # A fault of ours must not take the same entry again and again.
            entry = record_failure(bench, job, _internal(error), "internal")
        self._board.drop(job)
        publish(bench)
        bench.report(_end(job, entry, time.monotonic() - started_s))


class _EitherStop(threading.Event):
    """An event of one job that is also set when the whole run is to stop."""

    def __init__(self, run: threading.Event) -> None:
        super().__init__()
        self._run = run

    def is_set(self) -> bool:
        return super().is_set() or self._run.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        return self._run.wait(timeout) or super().is_set()


def _give_back(bench: Bench, job: Job) -> None:
    """Queue an entry again whose work was interrupted; no attempt is counted."""
    reason = "the work on it was interrupted"
    try:
        bench.move(job, Status.QUEUED, reason=reason, code="interrupted")
    except LostLease:
        return


def _internal(error: Exception) -> str:
    return f"internal error: {type(error).__name__}: {' '.join(str(error).split())[:500]}"


def _end(job: Job, entry: Entry, seconds: float) -> Step:
    return Step(job.model, "end", entry.reason or "", outcome=entry.status.value, seconds=seconds)
