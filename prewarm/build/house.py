"""Keeping house: bundles, logs, digests and history within their bounds.

Owns the order and how long history is kept; what goes is planned in ``store/``
(``collect_plan.py``, ``logs.py``, ``gone.py``) or stands in the file of its table.

- First the entries leave the database's published ones, then the manifest, and the file only after
  its grace period. A crash between two of them leaves more, never less, than is needed.
- What left for want of room comes back when there is room, the last proven first.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prewarm.build.bench import Bench
from prewarm.build.free_memory import give_memory_back
from prewarm.build.publish import publish
from prewarm.build.workspace import Workspace
from prewarm.config import Settings
from prewarm.store.collect import Cache, Collected, collect, look_at_cache
from prewarm.store.collect_plan import Bounds, Plan, plan
from prewarm.store.gone import gone_files
from prewarm.store.house_note import HouseNote, write_house_note
from prewarm.store.logs import LogFile, listed_logs, logs_going
from prewarm.store.status import WORKING, Status
from prewarm.store.timestamp import timestamp
from prewarm.store.view import read_environments, read_logs, read_paths, read_status, read_uses

#: Events, builds and start reports are forgotten after this time, each within a number of its own.
HISTORY_S = 90 * 86_400.0

#: Entries whose checkpoint is gone are forgotten after this time, and the oldest over a number.
RETIRED_S = 30 * 86_400.0
MOST_RETIRED = 1_000


@dataclass(frozen=True, slots=True)
class HousePlan:
    """What goes; ``problem`` says why nothing of the cache_dir can be judged, or is over."""

    cache: Cache
    bundles: Plan
    logs: tuple[LogFile, ...]
    gone: tuple[str, ...]

    @property
    def problem(self) -> str | None:
        """What somebody should look at."""
        return self.cache.problem or self.bundles.problem


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How many rows of history went, and how many bytes of the database with them."""

    retired: int
    builds: int
    events: int
    reports: int
    freed_bytes: int


@dataclass(frozen=True, slots=True)
class HouseKept:
    """What was done: bundles that left the manifest, files that went, models queued again."""

    planned: HousePlan
    evicted: tuple[str, ...]
    readmitted: tuple[str, ...]
    collected: Collected
    forgotten: Forgotten
    logs: int
    freed_bytes: int

    @property
    def problem(self) -> str | None:
        """What somebody should look at."""
        return self.collected.problem or self.planned.problem

    @property
    def is_news(self) -> bool:
        """Whether anything was done that is worth a line in a log."""
        removed = self.collected.bundles or self.collected.leftovers or self.logs
        return bool(removed or self.evicted or self.readmitted)


def plan_house(settings: Settings, *, now_s: float) -> HousePlan:
    """Return what keeping house would do now; writes nothing and needs no lock.

    Raises:
        PrewarmError: the state cannot be read.
    """
    uses = read_uses(settings.state_dir)
    cache = look_at_cache(
        settings.cache_dir, settings.state_dir, now_s=now_s, grace_s=settings.grace_s,
        builder=settings.builder,
    )  # fmt: skip
    bounds = Bounds(settings.grace_s, settings.cache_limit_bytes, settings.unused_s)
    return HousePlan(
        cache=cache,
        bundles=plan(cache.bundles, uses, bounds, now_s=now_s),
        logs=_plan_logs(settings, now_s=now_s),
        gone=gone_files(read_paths(settings.state_dir)),
    )


def _plan_logs(settings: Settings, *, now_s: float) -> tuple[LogFile, ...]:
    state_dir = settings.state_dir
    # Listed first: a log is named before it is there.
    logs = listed_logs(Workspace(state_dir).logs)
    probes = {f"probe-{found}.log" for found in read_environments(state_dir)}
    working = [row.log for row in read_status(state_dir) if row.status in WORKING]
    return logs_going(
        logs,
        named=read_logs(state_dir) | probes,
        busy={Path(log).name for log in working if log is not None},
        limit_bytes=settings.logs_limit_bytes,
        now_s=now_s,
    )


def keep_house(bench: Bench) -> HouseKept:
    """Bring everything within its bounds; hold the state lock for it.

    Raises:
        NoSpace: no space left for the manifest or a note.
        NotWritable: the cache_dir or the state directory cannot be written.
    """
    settings, database = bench.settings, bench.database
    planned = plan_house(settings, now_s=bench.now_s())
    evicted: list[str] = []
    for going in planned.bundles.evicted:
        evicted += database.evict(
            going.bundle.sha256, reason=going.why, code=going.code or "", at=bench.at()
        )
    if evicted:
        publish(bench)
    collected = collect(
        settings.cache_dir, settings.state_dir, now_s=bench.now_s(), grace_s=settings.grace_s,
        uses=read_uses(settings.state_dir),
    )  # fmt: skip
    database.forget_bundles(collected.bundles)
    database.forget_files(planned.gone)
    forgotten = _forget(bench)
    removed = [log for log in planned.logs if _removed(log)]
    readmitted = readmit(bench, planned.bundles) if planned.cache.problem is None else ()
    give_memory_back()
    write_house_note(
        settings.state_dir,
        HouseNote(
            bench.at(), planned.bundles.stays_bytes, settings.cache_limit_bytes, planned.problem
        ),
    )
    return HouseKept(
        planned=planned,
        evicted=tuple(evicted),
        readmitted=readmitted,
        collected=collected,
        forgotten=forgotten,
        logs=len(removed),
        freed_bytes=collected.freed_bytes
        + forgotten.freed_bytes
        + sum(log.size_bytes for log in removed),
    )


def _forget(bench: Bench) -> Forgotten:
    database, now_s = bench.database, bench.now_s()
    before = timestamp(now_s - HISTORY_S)
    database.forget_quarantined(before=before)
    return Forgotten(
        retired=database.forget_retired(before=timestamp(now_s - RETIRED_S), most=MOST_RETIRED),
        builds=database.forget_builds(before=before),
        events=database.forget_events(before=before),
        reports=database.forget_reports(before=before),
        freed_bytes=database.reclaim(),
    )


def readmit(bench: Bench, planned: Plan | None = None) -> tuple[str, ...]:
    """Queue again what left for want of room, as far as its bundle fits by now.

    Raises:
        PrewarmError: the state cannot be read.
    """
    stale = bench.database.entries_in([Status.STALE])
    rested = [entry for entry in stale if entry.code == "evicted"]
    if not rested:
        return ()
    planned = planned or plan_house(bench.settings, now_s=bench.now_s()).bundles
    limit_bytes, taken_bytes = bench.settings.cache_limit_bytes, planned.stays_bytes
    just_left = {model for going in planned.evicted for model in going.models}
    back: list[str] = []
    for entry in sorted(rested, key=lambda one: _proved_at(one.record or {}), reverse=True):
        size_bytes = int((entry.record or {}).get("bundle", {}).get("size_bytes") or 0)
        fits = not limit_bytes or taken_bytes + size_bytes <= limit_bytes
        if entry.model in just_left or not fits:
            continue
        if bench.database.readmit(entry.id, at=bench.at()):
            taken_bytes += size_bytes
            back.append(entry.model)
    return tuple(back)


def _proved_at(record: Mapping[str, Any]) -> str:
    return str((record.get("proof") or {}).get("proved_at") or "")


def _removed(log: LogFile) -> bool:
    with suppress(OSError):
        log.path.unlink()
        return True
    return False
