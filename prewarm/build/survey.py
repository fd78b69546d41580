"""The survey: what a look at the registry means for the entries.

Owns the order of work and what makes an entry need work. Compiles nothing: the only children are
probes, once per environment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from prewarm.build.asking import Desk, ask_probe
from prewarm.build.bench import Bench
from prewarm.build.change import DECIDED, what_changed
from prewarm.build.child import ChildFailed
from prewarm.build.environments import Environments, check_compiler
from prewarm.build.job import Job
from prewarm.build.quarantine import fault_of, set_aside
from prewarm.build.retry import decide_retry, inputs_changed
from prewarm.build.step import Step
from prewarm.environment import Environment
from prewarm.errors import ConfigError, PrewarmError
from prewarm.registry.architecture import architecture_digest
from prewarm.registry.content import content_digest
from prewarm.registry.declaration import Declaration
from prewarm.registry.scan import Found
from prewarm.store.entries import Entry
from prewarm.store.retries import EVICTED
from prewarm.store.status import PUBLISHED, WORKING, Status, allowed

#: The environment of entries whose declaration cannot be read, so that no interpreter is known.
NO_ENVIRONMENT = ""


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found: the entries of this run in order, and its jobs, small before large."""

    entry_ids: tuple[int, ...]
    jobs: tuple[Job, ...]
    undeclared: tuple[str, ...]
    settling: tuple[str, ...]


#: Whether an entry that failed is tried again now.
Retries = Callable[[Entry, Job], bool]


class Surveyor:
    """Surveys the registry; keeps what was learned of environments for the length of a run."""

    def __init__(self, bench: Bench, retries: Retries | None = None) -> None:
        self._bench = bench
        self._retries = retries or self._once
        self._environments = Environments()
        self._tried: set[tuple[int, str]] = set()

    def survey(self, found: Sequence[Found]) -> Survey:
        """Record every checkpoint, move its entry to where it belongs, and return the jobs."""
        entry_ids, jobs, undeclared, settling = [], [], [], []
        for item in found:
            if item.declaration is None and item.problem is None:
                undeclared.append(item.checkpoint.name)
                continue
            entry, job = self._look_at(item)
            entry_ids.append(entry.id)
            if job is not None:
                jobs.append(job)
            elif entry.status is Status.SETTLING:
                settling.append(item.checkpoint.name)
        jobs.sort(key=lambda job: (job.checkpoint.size_bytes, job.model))
        return Survey(tuple(entry_ids), tuple(jobs), tuple(undeclared), tuple(settling))

    def _look_at(self, item: Found) -> tuple[Entry, Job | None]:
        try:
            return self._look_closer(item)
        except PrewarmError as error:
            if error.code in ("interrupted", "no_space", "not_writable"):
                raise
            # A file that changed while it was read is still being written.
            status = Status.SETTLING if error.code == "changed" else Status.FAILED
            environment_id = NO_ENVIRONMENT
            if item.declaration is not None:
                with contextlib.suppress(PrewarmError):
                    environment_id = self._environments(item.declaration).id
            return self._rest(item, environment_id, status, str(error), error.code), None

    def _look_closer(self, item: Found) -> tuple[Entry, Job | None]:
        if item.problem is not None:
            raise item.problem
        declaration = item.declaration
        assert declaration is not None
        for line in declaration.not_yet():
            raise ConfigError(f"{declaration.file.name}: {line}", code="not_yet")
        environment = self._environments(declaration)
        if item.completeness.state == "settling":
            reason = item.completeness.reason or "the checkpoint is still being written"
            return self._rest(item, environment.id, Status.SETTLING, reason, "settling"), None
        if item.completeness.state == "broken":
            reason = item.completeness.reason or "the checkpoint is not complete"
            return self._rest(item, environment.id, Status.FAILED, reason, "bad_checkpoint"), None
        check_compiler(environment, declaration)
        reading = self._bench.reading(item.checkpoint.name)
        digest = content_digest(item.checkpoint, self._bench.database, reading=reading)
        architecture = architecture_digest(item.checkpoint, declaration)
        self._probe(declaration, environment, item.checkpoint.path)
        return self._queue(item, declaration, environment, digest, architecture)

    def _queue(
        self,
        item: Found,
        declaration: Declaration,
        environment: Environment,
        digest: str,
        architecture: str,
    ) -> tuple[Entry, Job | None]:
        """Queue the entry if what its bundle was proven for has changed; return its job then."""
        database, at = self._bench.database, self._bench.at()
        database.see_checkpoint(
            item.checkpoint.name,
            item.checkpoint.path,
            digest=digest,
            architecture=architecture,
            aliases=item.checkpoint.aliases,
            size_bytes=item.checkpoint.size_bytes,
            at=at,
        )
        self._drop_nameless(item.checkpoint.name)
        entry = database.put_entry(item.checkpoint.name, environment.id, at=at)
        job = Job(
            entry_id=entry.id,
            model=item.checkpoint.name,
            checkpoint=item.checkpoint,
            declaration=declaration,
            environment=environment,
            digest=digest,
            architecture=architecture,
        )
        if entry.status in WORKING:
            # Whoever works on it looks once more before it is published.
            return entry, None
        self._tell_other_environments(job)
        changed = what_changed(entry, job)
        if changed is None and (fault := fault_of(self._bench, entry)) is not None:
            sha256 = entry.bundle_sha256 or ""
            set_aside(self._bench, sha256, reason=fault.reason, damaged=fault.damaged)
            return database.put_entry(entry.model, environment.id, at=at), job
        if changed is None:
            return entry, None
        is_new = entry.attempts > 0 and inputs_changed(entry, job)
        if entry.status is Status.FAILED and not self._retries(entry, job):
            return entry, None
        if entry.code in EVICTED and not inputs_changed(entry, job) and not self._is_asked_for(job):
            # Building it at once would only take the room again.
            return entry, None
        self._tried.add((entry.id, digest))
        if entry.status in DECIDED:
            entry = database.move(entry.id, Status.STALE, at=at, reason=changed, code="stale")
        if entry.status is not Status.QUEUED:
            attempts = 0 if is_new else entry.attempts
            entry = database.move(
                entry.id, Status.QUEUED, at=at, attempts=attempts, next_try_at=None
            )
        return entry, job

    def _tell_other_environments(self, job: Job) -> None:
        """Take what changed out of the manifest also where another interpreter would build it.

        What did not change stays published: each interpreter starts from its own entry.
        """
        for entry in self._bench.database.entries_of(job.model):
            if entry.id == job.entry_id or entry.status not in PUBLISHED:
                continue
            changed = what_changed(entry, job)
            if changed is not None:
                self._bench.database.move(
                    entry.id,
                    Status.STALE,
                    at=self._bench.at(),
                    reason=f"{changed}; a scan with this environment's interpreter builds it anew",
                    code="stale",
                )

    def _is_asked_for(self, job: Job) -> bool:
        """Tell whether a deployment waits for the model, by its name or an alias."""
        rows = self._bench.database.live_requests(self._bench.at())
        return any(row.model in (job.model, *job.checkpoint.aliases) for row in rows)

    def _once(self, entry: Entry, job: Job) -> bool:
        """Let a failed entry be tried once a run.

        The next run tries it again, not this one while it waits for another checkpoint's files.
        """
        return (entry.id, job.digest) not in self._tried

    def _rest(
        self, item: Found, environment_id: str, status: Status, reason: str, code: str
    ) -> Entry:
        """Record a checkpoint that cannot be worked on now, and say why."""
        database, at = self._bench.database, self._bench.at()
        database.see_checkpoint(
            item.checkpoint.name,
            item.checkpoint.path,
            digest=None,
            architecture=None,
            aliases=item.checkpoint.aliases,
            at=at,
        )
        if environment_id != NO_ENVIRONMENT:
            self._drop_nameless(item.checkpoint.name)
        entry = database.put_entry(
            item.checkpoint.name, environment_id, at=at, status=status, reason=reason, code=code
        )
        if entry.status in WORKING:
            return entry
        if (entry.status, entry.reason, entry.code) != (status, reason, code):
            if not allowed(entry.status, status):
                entry = database.move(entry.id, Status.QUEUED, at=at)
            entry = database.move(
                entry.id, status, at=at, reason=reason, code=code, attempts=0, next_try_at=None
            )
        # Without news no event is written, however often a daemon looks.
        if status is Status.FAILED and (entry.next_try_at is None or entry.next_try_at <= at):
            decided = decide_retry(code, 1, at, model=entry.model)
            if decided.next_try_at is not None:
                database.put_off(entry.id, decided.next_try_at)
        return entry

    def _drop_nameless(self, model: str) -> None:
        """Retire the entry of the time when the declaration could not be read."""
        entry = self._bench.database.entry(model, NO_ENVIRONMENT)
        if entry is not None and entry.status is not Status.RETIRED:
            self._bench.database.move(
                entry.id,
                Status.RETIRED,
                at=self._bench.at(),
                reason="its declaration can be read again",
                code="mended",
            )

    def _probe(self, declaration: Declaration, environment: Environment, checkpoint: Path) -> None:
        """Ask torch itself once per environment and interpreter.

        A refusal is the entry's reason.
        """
        bench = self._bench
        fingerprint = environment.id + " " + " ".join(declaration.interpreter)
        if bench.database.probe_for(fingerprint) is not None:
            return
        bench.report(Step("", "probe", "asking torch about this machine"))
        desk = Desk(
            declaration=declaration,
            checkpoint=checkpoint,
            copy=bench.copy,
            log=bench.workspace.logs / f"probe-{environment.id}.log",
            memory_bytes=bench.settings.child_memory_bytes,
            stop=bench.stop,
        )
        with bench.workspace.directory("probe") as directory:
            try:
                probe = ask_probe(desk, directory / "run", declaration.model.device)
            except ChildFailed as error:
                raise ConfigError(f"no build is possible here: {error}", code=error.code) from error
        bench.database.put_environment(
            environment.id,
            facts=environment.to_dict(),
            probe=probe,
            fingerprint=fingerprint,
            at=bench.at(),
        )
