"""One model of a deployment: which published entry it starts from here, and what speaks against it.

Owns the order of the checks: published, variables, environment, mends, registry, status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prewarm.deploy.candidates import Present, candidates_for, device_of
from prewarm.deploy.fatal_variables import fatal_variables, mends_off
from prewarm.deploy.outcome import EAGER_VARIABLES, Started, Wanted
from prewarm.deploy.published import Published
from prewarm.deploy.select import choose, sentences
from prewarm.environment import Difference
from prewarm.errors import NotWarm

#: What may change a graph without changing torch's key for it: an operator's or a pass's own code
#: (pytorch #187319). A bundle from before it would answer as the old code did.
UNGUARDED = frozenset({"source", "architecture", "[model] setup"})


def choose_start(
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
