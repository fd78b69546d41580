"""Would a model start warm here? If not, each differing fact with both values and what it costs.

``explain`` asks for one model and ``doctor`` for all that is published. ``look`` gathers, ``judge``
decides without looking anywhere. What only a server's code decides (grad mode, strides, attributes)
cannot be told before it starts; its start report names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prewarm.deploy.candidates import Present, candidates_for, device_of
from prewarm.deploy.deep import compare_deep
from prewarm.deploy.fatal_variables import (
    fatal_variables,
    mends_off,
    other_directories,
    without_fatal,
)
from prewarm.deploy.published import Published, published_of
from prewarm.deploy.registry_now import changed_since
from prewarm.deploy.select import Nearest, nearest
from prewarm.deploy.source import Source
from prewarm.environment import INFORMATIVE, Difference, Environment, told_and_implied
from prewarm.errors import ManifestUnavailable, NotWarm, PrewarmError
from prewarm.registry.checkpoint import Checkpoint, CheckpointFile
from prewarm.store.view import StatusRow, read_digests, read_status

#: Asks torch under the interpreter in question, for an entry (``torchside/deep_facts.py``).
AskDeep = Callable[[Published], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Here:
    """Where a start is judged: this machine with an interpreter, variables, and maybe a registry.

    ``state_dir`` is the builder's, where there is one: it knows why a model is not published.
    """

    interpreter: tuple[str, ...]
    environ: Mapping[str, str]
    registry: Path | None = None
    state_dir: Path | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether a model would start warm, and everything against it.

    ``differences`` are told, ``implied`` only follow from them; ``compared`` counts the facts that
    are equal. ``reason`` is the entry's own, or why there is none.
    """

    model: str
    warm: bool
    status: str | None
    reason: str | None
    code: str | None
    differences: tuple[Difference, ...] = ()
    implied: tuple[Difference, ...] = ()
    warnings: tuple[str, ...] = ()
    equal: int = 0
    proved_at: str | None = None
    environment: str | None = None

    def sentence(self) -> str:
        """Say the whole in one line without a full stop."""
        if self.warm:
            proven = f", proven {self.proved_at}" if self.proved_at else ""
            return f"{self.model}: would start warm here ({self.equal} facts equal{proven})"
        parts = [f"{found.sentence()} (cost: {found.cost})" for found in self.differences]
        parts += [self.reason] if self.reason else []
        return f"{self.model}: would not start warm here: {'; '.join(parts)}"


@dataclass(frozen=True, slots=True)
class Looked:
    """All that was gathered about one model: the nearest entry and what differs beside it.

    ``registry`` is None where the registry could not be compared.
    """

    nearest: Nearest
    fatal: tuple[Difference, ...] = ()
    registry: tuple[Difference, ...] | None = None
    deep: tuple[Difference, ...] = ()
    caveat: str | None = None
    warnings: tuple[str, ...] = ()


def explain(
    model: str, source: Source, here: Here, *, ask_deep: AskDeep | None = None
) -> Explanation:
    """Return whether a model, by its name, an alias or a path, would start warm here.

    Raises:
        ConfigError: the interpreter does not run.
        RegistryError: a path cannot be read.
        PrewarmError: ``ask_deep`` got no answer.
    """
    warnings: list[str] = []
    try:
        published = published_of(source.manifests(), where=source.where(), warn=warnings.append)
        candidates, caveat = candidates_for(model, published)
    except (ManifestUnavailable, NotWarm) as error:
        return _from_state(model, here, error)
    present = Present(here.interpreter)
    looked = look(candidates, present, here, caveat=caveat, ask_deep=ask_deep)
    return judge(model, looked, warnings=tuple(warnings))


def explain_all(published: Sequence[Published], here: Here) -> tuple[Explanation, ...]:
    """Return the same for every published model, by name."""
    present = Present(here.interpreter)
    models = sorted({found.entry.model for found in published})
    return tuple(
        judge(
            model,
            look([found for found in published if found.entry.model == model], present, here),
        )
        for model in models
    )


def look(
    candidates: Sequence[Published],
    present: Present,
    here: Here,
    *,
    caveat: str | None = None,
    ask_deep: AskDeep | None = None,
) -> Looked:
    """Gather what differs: variables, environment, registry, and what torch tells if asked.

    Raises:
        ConfigError: the interpreter does not run.
        PrewarmError: ``ask_deep`` got no answer.
    """
    fatal = fatal_variables(here.environ, device=device_of(candidates[0]))

    def environment(found: Published) -> Environment:
        return without_fatal(present(found), fatal)

    found = nearest(candidates, environment)
    entry = found.published.entry
    # A checkpoint that was named by its path was compared by its content.
    known = _known(here.state_dir)
    registry = changed_since(entry, here.registry, known=known) if caveat is None else None
    deep: tuple[Difference, ...] = ()
    warnings = [
        f"{one.fact} is {one.present!r} here: {one.cost}" for one in other_directories(here.environ)
    ]
    if ask_deep is not None:
        told = frozenset(one.fact for one in (*fatal, *found.differences))
        deep = compare_deep(entry.proof.get("deep"), ask_deep(found.published), told)
        if entry.proof.get("deep") is None:
            warnings.append("its proof recorded nothing of torch's own; scan again to compare it")
    if here.registry is not None and "declared" not in entry.proof:
        warnings.append("its declaration was not recorded by the prewarm that built it")
    fatal = (*fatal, *mends_off(here.environ, entry.requires))
    return Looked(found, fatal, registry, deep, caveat, tuple(warnings))


def judge(model: str, looked: Looked, *, warnings: tuple[str, ...] = ()) -> Explanation:
    """Decide. Pure."""
    published = looked.nearest.published
    entry = published.entry
    registry = looked.registry or ()
    differences = (*looked.fatal, *looked.nearest.differences, *registry, *looked.deep)
    told, implied = told_and_implied(differences)
    reason, code = entry.reason, entry.code
    if entry.status != "warm":
        reason = reason or f"it is {entry.status}"
    elif looked.caveat is not None:
        reason, code = looked.caveat, "not_warm"
    notes = [f"warm only with the {', '.join(entry.requires)}"] if entry.requires else []
    if entry.covers == "declared order":
        notes.append("proven for the declared order of the calls only")
    return Explanation(
        model=model,
        warm=not differences and entry.status == "warm" and looked.caveat is None,
        status=str(entry.status),
        reason=reason,
        code=_code(looked) or code,
        differences=told,
        implied=implied,
        warnings=(*warnings, *looked.warnings, *notes),
        equal=_compared(looked) - sum(found.fact not in INFORMATIVE for found in differences),
        proved_at=entry.proof.get("proved_at"),
        environment=entry.environment,
    )


def _code(looked: Looked) -> str | None:
    if looked.fatal:
        return "fatal_variable"
    if looked.nearest.differences or looked.deep:
        return "environment_differs"
    return "declaration_changed" if looked.registry else None


def _compared(looked: Looked) -> int:
    published = looked.nearest.published
    facts = sum(name not in INFORMATIVE for name, _ in published.environment.facts)
    declared = published.entry.proof.get("declared")
    if looked.registry is None or not isinstance(declared, Mapping):
        return facts
    return facts + _leaves({key: declared[key] for key in declared if key != "key"})


def _leaves(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(_leaves(below) for below in value.values())
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return sum(_leaves(below) for below in value)
    return 1


# -- the builder's own state


def _from_state(model: str, here: Here, error: PrewarmError) -> Explanation:
    """Tell a model that is not published by what the builder knows of it."""
    name = model.strip("/")
    rows = [row for row in _rows(here.state_dir) if name in (row.model, *row.aliases)]
    row = max(rows, key=lambda found: found.updated_at, default=None)
    if row is None:
        return Explanation(model, False, None, str(error).removeprefix(f"{model}: "), error.code)
    reason = row.reason or _ON_ITS_WAY.get(row.status, f"it is {row.status}")
    return Explanation(
        model, False, row.status, f"{row.status}: {reason}", row.code or error.code,
        environment=row.environment_id,
    )  # fmt: skip


_ON_ITS_WAY = {
    "settling": "it is still being written",
    "queued": "it waits for the next scan",
    "building": "it is being built now",
    "proving": "it is being proven now",
    "warm": "but no manifest names it here; check --manifest",
}


def _rows(state_dir: Path | None) -> tuple[StatusRow, ...]:
    if state_dir is None:
        return ()
    try:
        return read_status(state_dir)
    except PrewarmError:
        # No builder works here: then the manifest is all there is.
        return ()


def _known(
    state_dir: Path | None,
) -> Callable[[Checkpoint], Callable[[CheckpointFile], str | None]]:
    """Return who knows the digests of a checkpoint's files: the builder's database, read-only."""

    def of(checkpoint: Checkpoint) -> Callable[[CheckpointFile], str | None]:
        try:
            paths = [file.path for file in checkpoint.files]
            found = read_digests(state_dir, paths) if state_dir is not None else {}
        except PrewarmError:
            found = {}
        return lambda file: found.get(
            (str(file.path), file.size_bytes, file.mtime_ns, file.ctime_ns, file.inode)
        )

    return of
