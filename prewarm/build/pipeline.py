"""The pipeline of one entry: share a bundle or build one, prove it, and bring the entry to rest.

The order of the last steps is what makes a crash harmless: the bundle is packed in scratch, proven
from the packed file (``proof.py``), put into ``cache_dir`` whole, recorded in the database
(``resting.py``), and only then named by the manifest (``publish.py``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prewarm.build.asking import ask_compile
from prewarm.build.bench import Bench
from prewarm.build.caveat import caveat_of_build
from prewarm.build.child import ChildFailed
from prewarm.build.job import Job
from prewarm.build.ladder import next_mode
from prewarm.build.place import NeedsBuild
from prewarm.build.proof import prove
from prewarm.build.quarantine import set_aside
from prewarm.build.record import Built, built_of_record
from prewarm.build.resting import publish_proven, rest_failed
from prewarm.build.turns import Turn
from prewarm.errors import StoreCorrupt
from prewarm.store.builds import INTERRUPTED
from prewarm.store.bundle import bundle_path, pack_apart, unpack
from prewarm.store.bundle_check import bundle_fault
from prewarm.store.bundles import BundleRow
from prewarm.store.entries import Entry
from prewarm.store.status import Status
from prewarm.store.triton_groups import point_groups


def process(bench: Bench, job: Job) -> Entry:
    """Bring one queued entry to a resting status and return it.

    A child that fails is a status with its reason; ``Interrupted``, ``NeedsBuild``, a full disk and
    an unwritable ``cache_dir`` pass through to the run.
    """
    log = bench.workspace.new_log(job.model, job.environment.id, bench.at())
    try:
        with bench.place.turn(bench.stop) as turn:
            return _share_or_build(bench, job, log, turn)
    except ChildFailed as error:
        return rest_failed(bench, job, log, error)


def _share_or_build(bench: Bench, job: Job, log: Path, turn: Turn) -> Entry:
    misfit: str | None = None
    for own_graph in (True, False):
        entry, misfit = _share_any(bench, job, log, own_graph=own_graph)
        if entry is not None:
            return entry
        if misfit is not None:
            break
    if bench.place.proofs_only:
        raise NeedsBuild(f"waits for a build of its own: {misfit or 'no bundle fits it any more'}")
    return _build(bench, job, log, turn, misfit=misfit)


def _share_any(
    bench: Bench, job: Job, log: Path, *, own_graph: bool
) -> tuple[Entry | None, str | None]:
    """Try the good bundles of the job's key until one is of use; see ``_share``."""
    for row in bench.database.bundles_for_key(job.key(own_graph=own_graph)):
        entry, misfit = _share(bench, job, row, log, own_graph=own_graph)
        if entry is not None or misfit is not None:
            return entry, misfit
    return None, None


def _share(
    bench: Bench, job: Job, row: BundleRow, log: Path, *, own_graph: bool
) -> tuple[Entry | None, str | None]:
    """Prove the job against a bundle that is there.

    Without an entry, the second answer says why the graph is another one, or None where the bundle
    itself is of no use.
    """
    packed = bundle_path(bench.settings.cache_dir, row.sha256)
    if _set_aside_if_wrong(bench, row):
        return None, None
    built = None if row.record is None else built_of_record(row.record, job, key=row.build_key)
    if row.record is None or built is None:
        return None, None
    bench.move(job, Status.PROVING, log=str(log))
    # Each other call first is proven once per bundle; only a warm entry says that it was.
    each_first = row.record["status"] != Status.WARM
    try:
        proven = prove(bench, job, built, packed, log, each_first=each_first)
    except StoreCorrupt as error:
        set_aside(bench, row.sha256, reason=str(error), damaged=True)
        return None, None
    if proven.verdict.other_graph:
        return None, proven.verdict.reason
    proven = proven.weighed(built.caveat)
    entry = publish_proven(bench, job, built, proven, packed, log, own_graph=own_graph)
    return entry, None


def _build(bench: Bench, job: Job, log: Path, turn: Turn, *, misfit: str | None) -> Entry:
    """Build and prove; ``misfit`` is why the bundle that was there holds another graph."""
    own_graph = misfit is not None
    key = job.key(own_graph=own_graph)
    bench.move(job, Status.BUILDING, build_key=key, own_graph=own_graph, log=str(log))
    with bench.workspace.directory("build") as directory:
        cache = directory / "cache"
        cache.mkdir()
        _start_from_nearest(bench, job, cache)
        with turn.lent():
            answer, left_mode_for = _compile(bench, job, key, cache, directory, log)
        packed = directory / "bundle.tar.zst"
        bench.say(job, "pack")
        built = Built(
            key=key,
            bundle=pack_apart(cache, packed),
            mode=answer["mode"],
            recompile_limit=job.recompile_limit,
            variables=bench.desk(job, log).variables(),
            calls=answer["calls"],
            failed_shape_sets=answer["failed"],
            caveat=caveat_of_build(
                asked_mode=job.modes[0],
                mode=answer["mode"],
                left_mode_for=left_mode_for,
                failed_shape_sets=answer["failed"],
                misfit=misfit,
            ),
        )
        bench.move(job, Status.PROVING)
        proven = prove(bench, job, built, packed, log, each_first=True, built_in=cache).weighed(
            built.caveat
        )
        return publish_proven(bench, job, built, proven, packed, log, own_graph=own_graph)


def _compile(
    bench: Bench, job: Job, key: str, cache: Path, directory: Path, log: Path
) -> tuple[dict[str, Any], str | None]:
    """Run the compile child down the mode ladder.

    The second answer is why the first mode was left.
    """
    mode, why = job.modes[0], None
    failures: list[tuple[str, str]] = []
    while True:
        build_id = bench.database.start_build(job.entry_id, key, at=bench.at(), log=str(log))
        try:
            answer = ask_compile(
                bench.desk(job, log),
                directory / f"compile-{mode}",
                cache=cache,
                mode=mode,
                recompile_limit=job.recompile_limit,
            )
        except ChildFailed as error:
            bench.database.end_build(
                build_id, "failed", at=bench.at(), reason=str(error), mode=mode
            )
            failures.append((mode, error.code))
            following = next_mode(job.modes, failures)
            if following is None:
                raise
            if following != mode:
                why = why or str(error)
            mode = following
            continue
        except BaseException as error:
            # A disk that refuses, or the end of the service: nobody else ends this row.
            bench.database.end_build(
                build_id, INTERRUPTED, at=bench.at(), reason=str(error), mode=mode
            )
            raise
        peak = answer["peak_memory_bytes"]
        bench.database.end_build(
            build_id,
            "compiled",
            at=bench.at(),
            mode=mode,
            peak_memory_bytes=peak["device"] or peak["resident"],
        )
        return answer, why


def _start_from_nearest(bench: Bench, job: Job, cache: Path) -> None:
    """Unpack the newest bundle of this architecture here, so that only what is new is compiled."""
    while True:
        nearest = bench.database.nearest_bundle(job.architecture, job.environment.id)
        if nearest is None:
            return
        if _set_aside_if_wrong(bench, nearest):
            continue
        packed = bundle_path(bench.settings.cache_dir, nearest.sha256)
        try:
            unpack(packed, cache, sha256=nearest.sha256, size_bytes=nearest.size_bytes)
            point_groups(cache, cache)
            return
        except StoreCorrupt as error:
            set_aside(bench, nearest.sha256, reason=str(error), damaged=True)


def _set_aside_if_wrong(bench: Bench, row: BundleRow) -> bool:
    fault = bundle_fault(
        bundle_path(bench.settings.cache_dir, row.sha256),
        sha256=row.sha256,
        size_bytes=row.size_bytes,
        digests=bench.database,
        reading=bench.pulse,
    )
    if fault is None:
        return False
    set_aside(bench, row.sha256, reason=fault.reason, damaged=fault.damaged)
    return True
