"""The proof of a published entry, run once more, and what it may change.

Rules:

- Only the verdict of a proof that came to its end speaks against a bundle. A child that failed, a
  full disk, counts that could not be watched and an interrupt leave the entry as it was.
- The bundle is read anew first: damage by the disk keeps its size and times.
- A bundle that failed is set aside before its entry is queued. After a crash between the two, or in
  the middle of the proof, the next scan queues the entry and shares the bundle only if it is good.
"""

from __future__ import annotations

from pathlib import Path

from prewarm.build.bench import Bench
from prewarm.build.child import Interrupted
from prewarm.build.job import Job
from prewarm.build.proof import prove
from prewarm.build.proven import Proven
from prewarm.build.quarantine import fault_of, set_aside
from prewarm.build.record import Built
from prewarm.build.resting import publish_proven, still_there
from prewarm.build.verdict import Verdict
from prewarm.build.verified import Outcome, Verified
from prewarm.errors import PrewarmError, StoreCorrupt
from prewarm.store.bundle import bundle_path
from prewarm.store.entries import Entry
from prewarm.store.status import Status


def prove_again(bench: Bench, job: Job, entry: Entry, built: Built) -> Verified:
    """Prove a published entry from its bundle and record it, or set the bundle aside.

    Raises:
        Interrupted: the run was asked to stop; the entry is as it was.
        NoSpace: no space left for the manifest.
        NotWritable: the cache_dir cannot be written.
    """
    damaged = _if_damaged(bench, entry)
    if damaged is not None:
        return damaged
    bench.database.move(entry.id, Status.PROVING, at=bench.at())
    try:
        proven = _proven(bench, job, entry, built)
        if isinstance(proven, Verified):
            return proven
        still_there(job)
    except Interrupted as error:
        _restore(bench, entry)
        raise Interrupted(f"interrupted; {entry.model} stays {entry.status}") from error
    except PrewarmError as error:
        _restore(bench, entry)
        again = _if_damaged(bench, entry) if isinstance(error, StoreCorrupt) else None
        return again or _as_before(entry, Outcome.NOT_PROVEN, str(error), error.code)
    except BaseException:
        _restore(bench, entry)
        raise
    return _refused(bench, entry, proven.verdict)


def _proven(bench: Bench, job: Job, entry: Entry, built: Built) -> Verified | Proven:
    """Run the proof and publish it if it is clean; else return what it came to."""
    log = _log(bench, job, entry)
    packed = bundle_path(bench.settings.cache_dir, built.bundle.sha256)
    proven = prove(bench, job, built, packed, log, each_first=True)
    weighed = proven.weighed(built.caveat)
    if proven.verdict.status is not Status.WARM or _is_known(entry, weighed.verdict):
        return weighed
    after = publish_proven(bench, job, built, weighed, packed, log, own_graph=entry.own_graph)
    calls = proven.proofs[0]["calls"]
    return Verified(
        after.model,
        Outcome.PROVEN,
        after.reason,
        after.code,
        after.environment_id,
        after.status,
        len(proven.proofs),
        calls[0]["warm_s"] if calls else None,
    )


def _log(bench: Bench, job: Job, entry: Entry) -> Path:
    """Return the log of the build that is proven again, so that both can be read together."""
    if entry.log is not None and Path(entry.log).parent == bench.workspace.logs:
        return Path(entry.log)
    return bench.workspace.new_log(job.model, job.environment.id, bench.at())


def _refused(bench: Bench, entry: Entry, verdict: Verdict) -> Verified:
    """Bring an entry under proof to rest whose proof was not clean."""
    reason = verdict.reason or ""
    if _is_known(entry, verdict):
        _restore(bench, entry)
        return _as_before(entry, Outcome.UNCHANGED, entry.reason or reason, entry.code)
    if verdict.code == "cannot_tell":
        _restore(bench, entry)
        return _as_before(entry, Outcome.NOT_PROVEN, reason, verdict.code)
    return _set_aside(bench, entry, reason, verdict.code, damaged=False)


def _is_known(entry: Entry, verdict: Verdict) -> bool:
    """Tell whether the entry is less than warm for just what the verdict says."""
    both_partial = entry.status is Status.PARTIAL and verdict.status is Status.PARTIAL
    return both_partial and entry.code == verdict.code


def _if_damaged(bench: Bench, entry: Entry) -> Verified | None:
    """Read the bundle and set it aside if it is not what its name promises."""
    bench.database.forget_file(bundle_path(bench.settings.cache_dir, entry.bundle_sha256 or ""))
    try:
        fault = fault_of(bench, entry)
    except PrewarmError as error:
        return _as_before(entry, Outcome.NOT_PROVEN, str(error), error.code)
    if fault is None:
        return None
    return _set_aside(bench, entry, fault.reason, "corrupt", damaged=fault.damaged)


def _restore(bench: Bench, entry: Entry) -> None:
    """Give an entry under proof its status, reason and code back; its record never left it."""
    bench.database.move(entry.id, entry.status, at=bench.at(), reason=entry.reason, code=entry.code)


def _set_aside(
    bench: Bench, entry: Entry, reason: str, code: str | None, *, damaged: bool
) -> Verified:
    try:
        set_aside(bench, entry.bundle_sha256 or "", reason=reason, damaged=damaged)
    finally:
        present = bench.database.entry(entry.model, entry.environment_id)
        if present is not None and present.status is Status.PROVING:
            # One under work is not queued by setting its bundle aside.
            bench.database.move(
                entry.id, Status.QUEUED, at=bench.at(), reason=reason, code="quarantined"
            )
    return Verified(
        entry.model, Outcome.SET_ASIDE, reason, code, entry.environment_id, Status.QUEUED
    )


def _as_before(entry: Entry, outcome: Outcome, reason: str, code: str | None) -> Verified:
    return Verified(entry.model, outcome, reason, code, entry.environment_id, entry.status)
