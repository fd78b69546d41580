"""A scan: the daemon's work once, in the foreground, from the lock to the last manifest."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prewarm.build.adopt import adopt
from prewarm.build.bench import Bench
from prewarm.build.child import Interrupted
from prewarm.build.device import DeviceWaits
from prewarm.build.foreground import Foreground
from prewarm.build.house import keep_house, readmit
from prewarm.build.job import Job
from prewarm.build.pipeline import process
from prewarm.build.place import NeedsBuild
from prewarm.build.publish import publish
from prewarm.build.quarantine import mend
from prewarm.build.resting import record_failure
from prewarm.build.run import open_run, registry_of
from prewarm.build.step import Reporter, Step
from prewarm.build.survey import Survey, Surveyor
from prewarm.config import Settings
from prewarm.errors import LostLease, NotWritable, PrewarmError, RegistryError
from prewarm.registry.presence import Presence
from prewarm.registry.scan import scan_registry, select_named
from prewarm.store.entries import Entry
from prewarm.store.root_seen import presence_of, remember_root, untold
from prewarm.store.status import WORKING, Status

#: A scan waits this many settle times for checkpoints that are still being written, then leaves
#: them to the next.
SETTLE_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What a scan leaves: the entries it looked at, what is undeclared, and what is gone."""

    entries: tuple[Entry, ...]
    undeclared: tuple[str, ...]
    retired: tuple[str, ...]
    seconds: float

    @property
    def all_warm(self) -> bool:
        """Whether every entry of this run is warm."""
        return all(entry.status is Status.WARM for entry in self.entries)


def run_scan(
    settings: Settings,
    *,
    models: tuple[str, ...] = (),
    report: Reporter,
    stop: threading.Event,
    now_s: Callable[[], float] = time.time,
) -> ScanResult:
    """Bring every entry of the registry (or of ``models``) to rest and publish after each.

    Raises:
        ConfigError: no registry is named, or a model is not in it.
        LockHeld: another prewarm works on the state directory.
        Interrupted: ``stop`` was set; what was under work is queued again.

    """
    started_s = time.monotonic()
    registry_of(settings)
    with open_run(settings, what="prewarm scan", report=report, stop=stop, now_s=now_s) as bench:
        adopt(bench)
        mend(bench)
        readmit(bench)
        try:
            survey, retired = _until_settled(bench, models)
        except BaseException:
            bench.database.release_dead(bench.at())
            raise
        publish(bench)
        keep_house(bench)
        entries = tuple(entry for entry in bench.database.entries() if entry.id in survey.entry_ids)
        return ScanResult(entries, survey.undeclared, retired, time.monotonic() - started_s)


def _until_settled(bench: Bench, models: tuple[str, ...]) -> tuple[Survey, tuple[str, ...]]:
    """Work until nothing is left, waiting a while for checkpoints still being written."""
    surveyor = Surveyor(bench)
    retired: tuple[str, ...] = ()
    for _ in range(SETTLE_ROUNDS):
        survey, gone = _look(bench, surveyor, models)
        retired += gone
        _work(bench, survey)
        if _queued_again(bench, survey):
            continue
        if not survey.settling:
            break
        wait_s = bench.settings.settle_s
        bench.report(Step(survey.settling[0], "settle", f"waiting {wait_s:g} s for it to be whole"))
        if bench.stop.wait(wait_s):
            raise Interrupted("interrupted; the work is queued again")
    return survey, retired


def _queued_again(bench: Bench, survey: Survey) -> bool:
    """Tell whether the work on one entry showed that the bundle of another is of no use."""
    queued = {entry.id for entry in bench.database.entries() if entry.status is Status.QUEUED}
    return not queued.isdisjoint(survey.entry_ids)


def _look(
    bench: Bench, surveyor: Surveyor, models: tuple[str, ...]
) -> tuple[Survey, tuple[str, ...]]:
    settings, registry = bench.settings, registry_of(bench.settings)
    bench.report(Step("", "scan", f"looking through {registry}"))
    _require_presence(bench, registry)
    found = scan_registry(registry, settle_s=settings.settle_s, now_s=bench.now_s())
    present = [item.checkpoint.name for item in found]
    if models:
        found = select_named(found, models, registry)
    survey = surveyor.survey(found)
    # Once more: its disk may have gone while it was looked at.
    presence = _require_presence(bench, registry)
    remember_root(settings.state_dir, presence)
    present += untold(bench.database, presence)
    retired = bench.database.retire_missing(present, at=bench.at())
    return survey, retired


def _require_presence(bench: Bench, registry: Path) -> Presence:
    presence = presence_of(registry, bench.settings.state_dir)
    if not presence.is_there:
        raise RegistryError(presence.reason or f"registry {registry} is not there")
    return presence


def _work(bench: Bench, survey: Survey) -> None:
    total, foreground = len(survey.jobs), Foreground(bench)
    for done, job in enumerate(survey.jobs):
        if bench.stop.is_set():
            raise Interrupted("interrupted; the work is queued again")
        started_s = time.monotonic()
        bench.report(Step(job.model, "begin", done=done, of=total))
        entry = _process_alone(bench, foreground, job)
        publish(bench)
        bench.report(
            Step(
                job.model,
                "end",
                entry.reason or "",
                done=done + 1,
                of=total,
                outcome=entry.status.value,
                seconds=time.monotonic() - started_s,
            )
        )


def _process_alone(bench: Bench, foreground: Foreground, job: Job) -> Entry:
    try:
        with foreground.bench_for(job) as own:
            return process_job(own, job)
    except DeviceWaits as error:
        return record_failure(bench, job, str(error), error.code)


def process_job(bench: Bench, job: Job) -> Entry:
    """Process one job; an expected failure of its own surroundings fails the entry, not the run."""
    try:
        return process(bench, job)
    except (Interrupted, LostLease, NeedsBuild, OSError):
        raise
    except PrewarmError as error:
        entry = bench.database.entry(job.model, job.environment.id)
        assert entry is not None
        if entry.status in WORKING:
            entry = record_failure(bench, job, str(error), error.code)
        if isinstance(error, NotWritable):  # nor could the next one be published
            raise
        return entry
