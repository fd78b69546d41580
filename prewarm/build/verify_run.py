"""A verification: what is published is proven once more on the builder, entry by entry.

Owns which entries are proven, and what is told where there is nothing to prove: what is not as it
was proven is left to a scan. What a second proof may change is ``reproof.py``'s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

from prewarm.build.bench import Bench
from prewarm.build.change import what_changed
from prewarm.build.child import Interrupted
from prewarm.build.environments import Environments
from prewarm.build.job import Job
from prewarm.build.publish import publish
from prewarm.build.quarantine import mend
from prewarm.build.record import built_of_record
from prewarm.build.reproof import prove_again
from prewarm.build.run import open_run, registry_of
from prewarm.build.step import Reporter, Step
from prewarm.build.verified import Outcome, Verified
from prewarm.config import Settings
from prewarm.environment import Environment, compare, told_and_implied
from prewarm.errors import PrewarmError
from prewarm.registry.architecture import architecture_digest
from prewarm.registry.content import content_digest
from prewarm.registry.scan import Found, scan_registry, select_named
from prewarm.store.entries import Entry
from prewarm.store.status import PUBLISHED

#: What mends an entry that there is nothing to prove of.
_SCAN = "; run `prewarm scan`"


def run_verify(
    settings: Settings,
    *,
    models: tuple[str, ...] = (),
    report: Reporter,
    stop: threading.Event,
    now_s: Callable[[], float] = time.time,
) -> tuple[Verified, ...]:
    """Prove ``models`` again, or all that is published for this environment, one by one.

    Raises:
        ConfigError: no registry is named.
        RegistryError: a model is not in it.
        PrewarmError: nothing is published for this environment.
        LockHeld: another prewarm works on the state directory.
        Interrupted: ``stop`` was set; what was under proof is as it was.
    """
    registry = registry_of(settings)
    with open_run(settings, what="prewarm verify", report=report, stop=stop, now_s=now_s) as bench:
        mend(bench)
        report(Step("", "scan", f"looking through {registry}"))
        found = scan_registry(registry, settle_s=settings.settle_s, now_s=now_s())
        environments = Environments()
        if models:
            wanted = select_named(found, models, registry)
            gone: list[Verified] = []
        else:
            wanted = _published(bench, found, environments)
            gone = list(_gone(bench, found))
        if not wanted and not gone:
            raise PrewarmError(
                "nothing is published for this environment; run `prewarm scan`",
                code="not_published",
            )
        return (*gone, *_each(bench, wanted, environments))


def _published(
    bench: Bench, found: Sequence[Found], environments: Environments
) -> tuple[Found, ...]:
    """Return what is published for the environment of its declaration, or for an unknown one."""
    published = {
        (entry.model, entry.environment_id)
        for entry in bench.database.entries()
        if entry.status in PUBLISHED
    }
    models = {model for model, _ in published}

    def is_published(item: Found) -> bool:
        name = item.checkpoint.name
        if name not in models or item.declaration is None or item.problem is not None:
            return name in models
        try:
            return (name, environments(item.declaration).id) in published
        except PrewarmError:
            return True

    return tuple(item for item in found if is_published(item))


def _gone(bench: Bench, found: Sequence[Found]) -> Iterator[Verified]:
    present = {item.checkpoint.name for item in found}
    for entry in bench.database.entries():
        if entry.status in PUBLISHED and entry.model not in present:
            reason = "its checkpoint is no longer in the registry" + _SCAN
            yield _not_tried(entry.model, reason, "checkpoint_gone", entry)


def _each(bench: Bench, wanted: Sequence[Found], environments: Environments) -> Iterator[Verified]:
    for done, item in enumerate(wanted):
        model, started_s = item.checkpoint.name, time.monotonic()
        if bench.stop.is_set():
            raise Interrupted("interrupted; what was not proven again is as it was")
        bench.report(Step(model, "begin", done=done, of=len(wanted)))
        verified = _verify(bench, item, environments)
        if verified.outcome is Outcome.PROVEN:
            publish(bench)
        bench.report(
            Step(
                model,
                "end",
                verified.reason or "",
                done=done + 1,
                of=len(wanted),
                outcome=verified.outcome.value.replace("_", " "),
                seconds=time.monotonic() - started_s,
            )
        )
        yield verified


def _verify(bench: Bench, item: Found, environments: Environments) -> Verified:
    model = item.checkpoint.name
    try:
        if item.problem is not None:
            raise item.problem
        if item.declaration is None:
            return _not_tried(
                model, f"no declaration covers it; `prewarm init {model}`", "not_published"
            )
        environment = environments(item.declaration)
        entry = bench.database.entry(model, environment.id)
        if entry is None or entry.status not in PUBLISHED:
            return _unpublished(bench, model, environment, entry)
        job = _job(bench, item, environment, entry)
    except PrewarmError as error:
        return _not_tried(model, str(error), error.code)
    changed = what_changed(entry, job)
    if changed is not None:
        return _not_tried(model, changed + _SCAN, "stale", entry)
    built = built_of_record(entry.record or {}, job, key=entry.build_key or "")
    if built is None:
        return _not_tried(model, "its record is of other calls" + _SCAN, "stale", entry)
    return prove_again(bench, job, entry, built)


def _job(bench: Bench, item: Found, environment: Environment, entry: Entry) -> Job:
    assert item.declaration is not None
    return Job(
        entry_id=entry.id,
        model=entry.model,
        checkpoint=item.checkpoint,
        declaration=item.declaration,
        environment=environment,
        digest=content_digest(item.checkpoint, bench.database, reading=bench.reading(entry.model)),
        architecture=architecture_digest(item.checkpoint, item.declaration),
    )


def _unpublished(
    bench: Bench, model: str, environment: Environment, entry: Entry | None
) -> Verified:
    """Say why there is nothing to prove in this environment."""
    if entry is not None:
        reason = f"is {entry.status}" + (f": {entry.reason}" if entry.reason else "")
        return _not_tried(model, reason + _SCAN, entry.code or "not_published", entry)
    facts = bench.database.environments()
    others = [
        compare(Environment.from_facts(facts[other.environment_id]), environment)
        for other in bench.database.entries()
        if other.model == model and other.status in PUBLISHED and other.environment_id in facts
    ]
    if not others:
        return _not_tried(model, "is not published" + _SCAN, "not_published")
    nearest = min(others, key=len)
    told, _ = told_and_implied(nearest)
    differ = "; ".join(difference.sentence() for difference in told)
    return _not_tried(
        model, f"is published for another environment alone: {differ}", "environment_differs"
    )


def _not_tried(model: str, reason: str, code: str, entry: Entry | None = None) -> Verified:
    environment_id, status = (entry.environment_id, entry.status) if entry else (None, None)
    return Verified(model, Outcome.NOT_TRIED, reason, code, environment_id, status)
