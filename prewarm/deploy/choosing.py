"""The models of a deployment: which published entry each starts from here, and what speaks against.

Owns the order of the checks: published, variables, environment, mends, registry, status, and that
models which share a process agree in their variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from prewarm.deploy.candidates import Present, candidates_for, device_of
from prewarm.deploy.fatal_variables import fatal_variables, mends_off
from prewarm.deploy.outcome import EAGER_VARIABLES, Miss, Started, Wanted
from prewarm.deploy.published import Published, published_of
from prewarm.deploy.select import choose, sentences
from prewarm.deploy.source import Source
from prewarm.environment import Difference
from prewarm.errors import NotWarm, PrewarmError

#: What may change a graph without changing torch's key for it: an operator's or a pass's own code
#: (pytorch #187319). A bundle from before it would answer as the old code did.
UNGUARDED = frozenset({"source", "architecture", "[model] setup"})


Choice: TypeAlias = tuple[list[Started], list[Miss]]


class Choosing:
    """The choice of what each model starts from, made again when something may have changed."""

    def __init__(self, wanted: Wanted, environ: Mapping[str, str], source: Source) -> None:
        self.wanted = wanted
        self.source = source
        self.present = Present(wanted.interpreter)
        self.published: tuple[Published, ...] = ()
        self._environ = environ

    def run(self, warnings: list[str]) -> Choice:
        """Read what is published, and choose."""
        wanted = self.wanted
        try:
            self.published = published_of(
                self.source.manifests(), where=self.source.where(), warn=warnings.append
            )
        except PrewarmError as error:
            return [], [Miss(None, error)]
        started: list[Started] = []
        misses: list[Miss] = []
        for model in wanted.models:
            try:
                found = _choose(model, wanted, self.published, self.present, self._environ)
                _refuse_conflicts(found, started)
            except PrewarmError as error:
                misses.append(Miss(model, error))
                continue
            if found.caveat is not None:
                misses.append(Miss(model, found.caveat))
                if wanted.on_miss == "eager" and found.caveat.code == "declaration_changed":
                    # What an eager start is for: what changed is not compiled before the first
                    # answer.
                    continue
            started.append(found)
        return started, misses


def _refuse_conflicts(found: Started, started: Sequence[Started]) -> None:
    """Pass if a model can start in one process with those before it.

    Raises:
        NotWarm: it was proven with another value of a variable.
    """
    for other in started:
        theirs = other.published.entry.variables
        for name, value in found.published.entry.variables.items():
            if theirs.get(name, value) != value:
                raise NotWarm(
                    f"{found.model}: was proven with {name}={value}, {other.model} with "
                    f"{theirs[name]}; give each its own --into and process",
                    code="variables_conflict",
                )


def _choose(
    model: str,
    wanted: Wanted,
    published: Sequence[Published],
    present: Present,
    environ: Mapping[str, str],
) -> Started:
    """Return what a model starts from.

    Raises:
        NotWarm: nothing that is published may be used here.
        EnvironmentDiffers: it is published for other environments only.
        ConfigError: the interpreter does not run, or a given fact has no such name.
        RegistryError: a path cannot be read.
    """
    candidates, caveat = candidates_for(model, published)
    if wanted.facts:
        # The variables here are not the server's.
        from prewarm.deploy.given_facts import choose_for

        chosen = choose_for(model, candidates, dict(wanted.facts))
    else:
        _refuse_fatal(model, candidates[0], wanted, environ)
        chosen = choose(model, candidates, present)
    if caveat is not None:
        return Started(model, chosen, NotWarm(f"{model}: {caveat}"))
    off = () if wanted.facts else mends_off(environ, chosen.entry.requires)
    if off:
        told = f"{model}: {sentences(off)}; unset it for this server"
        return Started(model, chosen, NotWarm(told, code="fatal_variable"))
    changed = _changed(wanted, chosen)
    stale = [difference for difference in changed or () if difference.fact in UNGUARDED]
    if stale:
        raise NotWarm(
            f"{model}: {sentences(stale)}; torch's keys do not see into custom operators and "
            "passes, so its bundle is not used; run `prewarm scan` to build it as it is now",
            code="source_changed",
        )
    if changed:
        return Started(
            model,
            chosen,
            NotWarm(
                f"{model}: {sentences(changed)}; run `prewarm scan` to build it as it is now",
                code="declaration_changed",
            ),
        )
    if chosen.entry.status != "warm":
        reason = chosen.entry.reason or f"is {chosen.entry.status}"
        return Started(model, chosen, NotWarm(f"{model}: {reason}"))
    return Started(model, chosen, None)


def _refuse_fatal(
    model: str, candidate: Published, wanted: Wanted, environ: Mapping[str, str]
) -> None:
    # Without a bundle an eager start sets this itself, and the env file may be read before us.
    own = EAGER_VARIABLES if wanted.on_miss == "eager" else {}
    fatal = fatal_variables(environ, device=device_of(candidate), own=own)
    if fatal:
        raise NotWarm(
            f"{model}: {sentences(fatal)}; unset {'it' if len(fatal) == 1 else 'them'} for this "
            "server",
            code="fatal_variable",
        )


def _changed(wanted: Wanted, chosen: Published) -> tuple[Difference, ...] | None:
    if wanted.registry is None:
        return None
    # Without a registry, as on most deployments, nothing of its side is imported.
    from prewarm.deploy.registry_now import changed_since

    return changed_since(chosen.entry, wanted.registry)
