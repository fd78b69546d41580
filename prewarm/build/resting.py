"""How an entry comes to rest: published as its verdict says, or failed with its reason.

The last look before the word: nothing is published for a checkpoint or source that is not the one
that was digested.
"""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from prewarm.build.bench import Bench
from prewarm.build.child import ChildFailed
from prewarm.build.job import Job
from prewarm.build.origin import origin
from prewarm.build.proven import Proven
from prewarm.build.record import Built, make_record
from prewarm.build.retry import decide_retry
from prewarm.errors import PrewarmError
from prewarm.registry.architecture import architecture_digest
from prewarm.store.bundle import bundle_path
from prewarm.store.collect import keep_bundle
from prewarm.store.entries import Entry, EntryFields
from prewarm.store.status import Status
from prewarm.store.whole_file import publish_file


def publish_proven(
    bench: Bench,
    job: Job,
    built: Built,
    proven: Proven,
    packed: Path,
    log: Path,
    *,
    own_graph: bool,
) -> Entry:
    """Rest the entry as the verdict says.

    What is usable goes into ``cache_dir`` before it is recorded.
    """
    database, at = bench.database, bench.at()
    still_there(job)
    verdict = proven.verdict
    if verdict.status is Status.FAILED:
        return record_failure(
            bench, job, verdict.reason or "", verdict.code or "", log=str(log),
            build_key=built.key, bundle_sha256=None, record=None,
        )  # fmt: skip
    if verdict.status not in (Status.WARM, Status.PARTIAL):
        return bench.move(
            job, verdict.status, reason=verdict.reason, code=verdict.code,
            checkpoint_digest=job.digest, architecture=job.architecture, build_key=built.key,
            bundle_sha256=None, record=None, log=str(log),
        )  # fmt: skip
    record = make_record(job, built, proven, at=at, origin=origin(job, bench.settings.registry))
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
            record=record,
            at=at,
        )
    return bench.move(
        job,
        verdict.status,
        reason=verdict.reason,
        code=verdict.code,
        attempts=0,
        next_try_at=None,
        checkpoint_digest=job.digest,
        architecture=job.architecture,
        build_key=built.key,
        own_graph=own_graph,
        bundle_sha256=built.bundle.sha256,
        record=record,
        log=str(log),
    )


def still_there(job: Job) -> None:
    """Refuse to go on for a checkpoint that is not the one that was digested any more.

    Raises:
        ChildFailed: it, its declaration's source or a file of it is gone or changed.
    """
    if not job.checkpoint.path.exists():
        raise ChildFailed("the checkpoint vanished while it was built", code="vanished")
    changed = job.changed_file() or _changed_source(job)
    if changed is not None:
        raise ChildFailed(
            f"{changed} changed while the checkpoint was built; the next scan builds it again",
            code="changed",
        )


def _changed_source(job: Job) -> str | None:
    """Tell whether source below ``path`` is other than what the architecture was made of."""
    try:
        same = architecture_digest(job.checkpoint, job.declaration) == job.architecture
    except PrewarmError as error:
        return str(error)
    return None if same else "the model's source"


def rest_failed(bench: Bench, job: Job, log: Path, error: ChildFailed) -> Entry:
    """Record why an entry has no bundle; that its checkpoint vanished comes before all else."""
    try:
        still_there(job)
    except ChildFailed as gone:
        error = gone
    return record_failure(
        bench, job, str(error), error.code, log=str(log), bundle_sha256=None, record=None
    )


def record_failure(
    bench: Bench, job: Job, reason: str, code: str, **fields: Unpack[EntryFields]
) -> Entry:
    """Rest an entry as failed, and say when it is tried again or that it is given up.

    Attempts that ended otherwise do not count, nor do those with other inputs (see the survey).
    """
    database, at = bench.database, bench.at()
    entry = database.entry(job.model, job.environment.id)
    same = entry is not None and database.last_failure_code(job.entry_id) == code
    attempts = 1 + (entry.attempts if entry is not None and same else 0)
    decided = decide_retry(code, attempts, at, model=job.model)
    fields["attempts"], fields["next_try_at"] = attempts, decided.next_try_at
    fields["checkpoint_digest"], fields["architecture"] = job.digest, job.architecture
    keys = (job.key(own_graph=False), job.key(own_graph=True))
    if entry is None or entry.build_key not in keys:
        fields["build_key"] = keys[0]
    if decided.last_word is not None:
        reason = f"{reason}; {decided.last_word}"
    return bench.move(job, Status.FAILED, reason=reason, code=code, **fields)
