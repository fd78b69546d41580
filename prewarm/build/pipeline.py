"""The pipeline of one entry.

Share a bundle or build one, prove it from the packed file, publish, record.

The order of the last steps is what makes a crash harmless: the bundle is packed in scratch, proven
from the packed file, put into ``cache_dir`` whole, recorded in the database, and only then named by
the manifest (``publish.py``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prewarm.build.asking import Desk, ask_compile, ask_proof
from prewarm.build.child import ChildFailed
from prewarm.build.job import Job
from prewarm.build.ladder import fallback_reason, next_mode
from prewarm.build.proof_user import proof_user
from prewarm.build.record import Built, calls_of_record, failed_of_record, make_record
from prewarm.build.step import Reporter, Step
from prewarm.build.telling import progress_detail
from prewarm.build.verdict import Verdict, judge
from prewarm.build.workspace import Workspace
from prewarm.config import Settings
from prewarm.errors import StoreCorrupt
from prewarm.store.bundle import BundleInfo, bundle_path, pack_apart, unpack
from prewarm.store.bundles import BundleRow
from prewarm.store.collect import keep_bundle
from prewarm.store.database import Database
from prewarm.store.entries import Entry
from prewarm.store.manifest import read_manifests
from prewarm.store.status import Status
from prewarm.store.timestamp import timestamp
from prewarm.store.whole_file import publish_file

#: torch keeps this many graphs for one piece of code unless told otherwise
#: (torch/_dynamo/config.py, 2.9 to 2.14).
DEFAULT_RECOMPILE_LIMIT = 8
#: What a warm entry says whose checkpoint could not share the bundle of its architecture.
OWN_GRAPH_REASON = (
    "warm from a build of its own: its graph depends on weight values, so the bundle of the same "
    "architecture did not fit ({why})"
)


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

    def at(self) -> str:
        """Return the present time as text."""
        return timestamp(self.now_s())


def process(bench: Bench, job: Job) -> Entry:
    """Bring one queued entry to a resting status and return it.

    A failure of the entry's own is a status with its reason; ``Interrupted``, a full disk and an
    unwritable ``cache_dir`` pass through, since they are no fault of the entry.
    """
    log = bench.workspace.log_for(job.model, job.environment.id)
    log.unlink(missing_ok=True)
    try:
        shared = bench.database.bundle_for_key(job.key(own_graph=False))
        own = bench.database.bundle_for_key(job.key(own_graph=True))
        misfit: str | None = None
        if own is not None or shared is not None:
            row = own or shared
            assert row is not None
            entry, misfit = _share(bench, job, row, log, own_graph=own is not None)
            if entry is not None:
                return entry
        return _build(bench, job, log, own_graph=misfit is not None, why=misfit)
    except ChildFailed as error:
        return _failed(bench, job, log, error)


def _share(
    bench: Bench, job: Job, row: BundleRow, log: Path, *, own_graph: bool
) -> tuple[Entry | None, str | None]:
    """Prove the job against a bundle that is there.

    The second answer says why its graph is another one.
    """
    source = _record_of_bundle(bench, row.sha256)
    packed = bundle_path(bench.settings.cache_dir, row.sha256)
    if source is None or not packed.is_file() or packed.stat().st_size != row.size_bytes:
        return None, None
    bench.database.move(job.entry_id, Status.PROVING, at=bench.at())
    built = Built(
        key=row.build_key,
        bundle=BundleInfo(row.sha256, row.size_bytes, row.unpacked_bytes, row.files),
        mode=source["compile"]["mode"],
        recompile_limit=source["compile"]["recompile_limit"],
        variables=source["variables"],
        calls=calls_of_record(source),
        failed_shape_sets=failed_of_record(source),
    )
    try:
        proofs = _prove(bench, job, built, packed, log, each_first=False)
    except StoreCorrupt as error:
        bench.database.quarantine_bundle(row.sha256, reason=str(error), at=bench.at())
        return None, None
    verdict = judge(proofs)
    if verdict.other_graph:
        return None, verdict.reason
    return _publish(bench, job, built, verdict, proofs, packed, log, own_graph=own_graph), None


def _build(bench: Bench, job: Job, log: Path, *, own_graph: bool, why: str | None) -> Entry:
    key = job.key(own_graph=own_graph)
    bench.database.move(
        job.entry_id,
        Status.BUILDING,
        at=bench.at(),
        build_key=key,
        own_graph=own_graph,
        log=str(log),
    )
    with bench.workspace.directory("build") as directory:
        cache = directory / "cache"
        cache.mkdir()
        _start_from_nearest(bench, job, cache)
        answer, fell_from = _compile(bench, job, key, cache, directory, log)
        packed = directory / "bundle.tar.zst"
        _say(bench, job, "pack")
        info = pack_apart(cache, packed)
        built = Built(
            key=key,
            bundle=info,
            mode=answer["mode"],
            recompile_limit=_recompile_limit(job),
            variables=_desk(bench, job, log).variables(),
            calls=answer["calls"],
            failed_shape_sets=answer["failed"],
        )
        bench.database.move(job.entry_id, Status.PROVING, at=bench.at())
        proofs = _prove(bench, job, built, packed, log, each_first=True)
        verdict = _weigh(judge(proofs), built, job, fell_from)
        if own_graph and verdict.status is Status.WARM and why:
            verdict = replace(verdict, code="own_graph", reason=OWN_GRAPH_REASON.format(why=why))
        return _publish(bench, job, built, verdict, proofs, packed, log, own_graph=own_graph)


def _weigh(verdict: Verdict, built: Built, job: Job, fell_from: str | None) -> Verdict:
    """Lower a clean proof where the build itself was not what was asked for."""
    if verdict.status is not Status.WARM:
        return verdict
    if built.failed_shape_sets:
        name, reason = next(iter(built.failed_shape_sets.items()))
        return Verdict(Status.PARTIAL, "shape_set_failed", f"shape set {name} failed: {reason}")
    if fell_from is not None:
        return Verdict(
            Status.PARTIAL, "mode_fallback", fallback_reason(job.modes[0], built.mode, fell_from)
        )
    return verdict


def _compile(
    bench: Bench, job: Job, key: str, cache: Path, directory: Path, log: Path
) -> tuple[dict[str, Any], str | None]:
    """Run the compile child down the mode ladder.

    The second answer is why the first mode was left.
    """
    mode, why = job.modes[0], None
    while True:
        build_id = bench.database.start_build(job.entry_id, key, at=bench.at(), log=str(log))
        try:
            answer = ask_compile(
                _desk(bench, job, log),
                directory / f"compile-{mode}",
                cache=cache,
                mode=mode,
                recompile_limit=_recompile_limit(job),
            )
        except ChildFailed as error:
            bench.database.end_build(
                build_id, "failed", at=bench.at(), reason=str(error), mode=mode
            )
            lighter = next_mode(job.modes, mode, error.code)
            if lighter is None:
                raise
            why = why or str(error)
            mode = lighter
            continue
        peak = answer["peak_memory_bytes"]
        bench.database.end_build(
            build_id,
            "compiled",
            at=bench.at(),
            mode=mode,
            peak_memory_bytes=peak["device"] or peak["resident"],
        )
        return answer, why


def _prove(
    bench: Bench, job: Job, built: Built, packed: Path, log: Path, *, each_first: bool
) -> list[dict[str, Any]]:
    """Run the proof from the packed bundle.

    With ``each_first`` also each other call first, once per bundle.
    """
    calls = job.declaration.calls()
    good = [
        number for number, call in enumerate(calls) if call.shape_set not in built.failed_shape_sets
    ]
    orders = [good]
    if each_first and job.declaration.compile.dynamic != "auto":
        orders += [[first, *(n for n in good if n != first)] for first in good[1:]]
    proofs = []
    for number, order in enumerate(orders):
        _say(bench, job, "prove", f"fresh process {number + 1} of {len(orders)}")
        proof = _prove_once(bench, job, built, packed, log, order=order, full=number == 0)
        proofs.append(proof)
        if judge([proof]).status is not Status.WARM:
            break
    return proofs


def _prove_once(
    bench: Bench,
    job: Job,
    built: Built,
    packed: Path,
    log: Path,
    *,
    order: Sequence[int],
    full: bool,
) -> dict[str, Any]:
    with bench.workspace.directory("proof") as directory:
        cache = directory / "cache"
        unpack(packed, cache, sha256=built.bundle.sha256, size_bytes=built.bundle.size_bytes)
        desk = _desk(bench, job, log)
        user = proof_user(bench.settings, desk, cache)
        return ask_proof(
            desk, directory / "run", cache=cache, mode=built.mode, order=order, full=full, user=user
        )


def _publish(
    bench: Bench,
    job: Job,
    built: Built,
    verdict: Verdict,
    proofs: Sequence[Mapping[str, Any]],
    packed: Path,
    log: Path,
    *,
    own_graph: bool,
) -> Entry:
    """Rest the entry as the verdict says.

    What is usable goes into ``cache_dir`` before it is recorded.
    """
    database, at = bench.database, bench.at()
    _still_there(job)
    if verdict.status not in (Status.WARM, Status.PARTIAL):
        return database.move(
            job.entry_id, verdict.status, at=at, reason=verdict.reason, code=verdict.code,
            checkpoint_digest=job.digest, architecture=job.architecture, build_key=built.key,
            bundle_sha256=None, record=None, log=str(log),
        )  # fmt: skip
    target = bundle_path(bench.settings.cache_dir, built.bundle.sha256)
    if packed == target:
        keep_bundle(bench.settings.cache_dir, built.bundle.sha256, now_s=bench.now_s())
    else:
        publish_file(packed, target)
        database.add_bundle(
            built.bundle.sha256,
            build_key=built.key,
            architecture=job.architecture,
            environment_id=job.environment.id,
            size_bytes=built.bundle.size_bytes,
            unpacked_bytes=built.bundle.unpacked_bytes,
            files=built.bundle.files,
            at=at,
        )
    return database.move(
        job.entry_id,
        verdict.status,
        at=at,
        reason=verdict.reason,
        code=verdict.code,
        attempts=0,
        checkpoint_digest=job.digest,
        architecture=job.architecture,
        build_key=built.key,
        own_graph=own_graph,
        bundle_sha256=built.bundle.sha256,
        record=make_record(job, built, verdict, proofs, at=at),
        log=str(log),
    )


def _still_there(job: Job) -> None:
    """Refuse to publish for a checkpoint that is not the one that was digested any more."""
    if not job.checkpoint.exists():
        raise ChildFailed("the checkpoint vanished while it was built", code="vanished")
    changed = job.changed_file()
    if changed is not None:
        raise ChildFailed(
            f"{changed} changed while the checkpoint was built; the next scan builds it again",
            code="changed",
        )


def _failed(bench: Bench, job: Job, log: Path, error: ChildFailed) -> Entry:
    try:
        _still_there(job)
    except ChildFailed as gone:
        error = gone
    entry = bench.database.entry(job.model, job.environment.id)
    return bench.database.move(
        job.entry_id,
        Status.FAILED,
        at=bench.at(),
        reason=str(error),
        code=error.code,
        attempts=(entry.attempts if entry else 0) + 1,
        checkpoint_digest=job.digest,
        architecture=job.architecture,
        bundle_sha256=None,
        record=None,
        log=str(log),
    )


def _start_from_nearest(bench: Bench, job: Job, cache: Path) -> None:
    """Unpack the newest bundle of this architecture here, so that only what is new is compiled."""
    nearest = bench.database.nearest_bundle(job.architecture, job.environment.id)
    if nearest is None:
        return
    packed = bundle_path(bench.settings.cache_dir, nearest.sha256)
    if not packed.is_file():
        return
    try:
        unpack(packed, cache, sha256=nearest.sha256, size_bytes=nearest.size_bytes)
    except StoreCorrupt as error:  # it is only a start: without it everything is compiled
        bench.database.quarantine_bundle(nearest.sha256, reason=str(error), at=bench.at())


def _record_of_bundle(bench: Bench, sha256: str) -> dict[str, Any] | None:
    """Return what is known of a bundle: from an entry of ours, else from whoever published it."""
    for entry in bench.database.entries():
        if entry.bundle_sha256 == sha256 and entry.record is not None:
            return entry.record
    for read in read_manifests(bench.settings.cache_dir)[0]:
        for published in read.manifest.entries:
            if published.bundle.sha256 == sha256:
                return published.to_dict()
    return None


def _recompile_limit(job: Job) -> int | None:
    """Return the limit that the declared calls need where torch's own is too low."""
    calls = len(job.declaration.calls())
    return calls if calls > DEFAULT_RECOMPILE_LIMIT else None


def _desk(bench: Bench, job: Job, log: Path) -> Desk:
    return Desk(
        declaration=job.declaration,
        checkpoint=job.checkpoint,
        copy=bench.copy,
        log=log,
        memory_bytes=bench.settings.child_memory_bytes,
        stop=bench.stop,
        progress=lambda told: _say(bench, job, str(told.get("step", "")), progress_detail(told)),
    )


def _say(bench: Bench, job: Job, what: str, detail: str = "") -> None:
    bench.report(Step(job.model, what, detail))
