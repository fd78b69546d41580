"""The pre-start hook: from the names of models to an environment in which a server starts warm.

Owns the order: read what is published and trusted, choose by model and present environment, make
the private tree right, point the deployment at it. Each step is another file's.

- A model that is not warm here is a ``Miss``: told, and by ``on_miss`` a failure, a cold start or
  an eager one. A cache never takes a service down: with ``cold`` and ``eager`` nothing else does.
- An env file is always written, so that ``EnvironmentFile=`` finds one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from prewarm.deploy.candidates import Present, candidates_for, device_of
from prewarm.deploy.deployment_file import point_deployment, start_variables
from prewarm.deploy.fatal_variables import fatal_variables, mends_off
from prewarm.deploy.outcome import EAGER_VARIABLES, Miss, Outcome, Started, Wanted
from prewarm.deploy.private import BundleFile, prepare
from prewarm.deploy.published import Published, read_published
from prewarm.deploy.select import choose, sentences
from prewarm.environment import Difference
from prewarm.errors import NotWarm, PrewarmError
from prewarm.store.command_path import require_command_path
from prewarm.store.leases import mark_used

#: What may change a graph without changing torch's key for it: an operator's or a pass's own code
#: (pytorch #187319). A bundle from before it would answer as the old code did.
UNGUARDED = frozenset({"source", "architecture", "[model] setup"})


def run_hook(wanted: Wanted, environ: Mapping[str, str]) -> Outcome:
    """Prepare the private directory for the models and return the variables to start with.

    Raises:
        PrewarmError: with ``on_miss`` "fail" only, the first thing against a warm start.
    """
    warnings: list[str] = []
    started, misses = _choose_all(wanted, environ, warnings)
    if misses and wanted.on_miss == "fail":
        raise misses[0].error
    # A model that has a bundle starts from it even if something compiles; without one it is eager.
    eager = EAGER_VARIABLES if wanted.on_miss == "eager" else {}
    prepared = None
    variables = dict(eager)
    if started:
        try:
            require_command_path(wanted.into, flag="--into")
            prepared = prepare(wanted.into, [_bundle(wanted, found) for found in started])
            variables = start_variables(prepared, started, environ, warnings)
            variables |= eager if len(started) < len(wanted.models) else {}
            point_deployment(prepared, started, variables)
            mark_used((wanted.cache_dir, found.published.entry.bundle.sha256) for found in started)
        except PrewarmError as error:
            if wanted.on_miss == "fail":
                raise
            misses.append(Miss(None, error))
            prepared, started, variables = None, [], dict(eager)
    return Outcome(variables, tuple(started), tuple(misses), prepared, tuple(warnings))


def _choose_all(
    wanted: Wanted, environ: Mapping[str, str], warnings: list[str]
) -> tuple[list[Started], list[Miss]]:
    try:
        published = read_published(wanted.cache_dir, uid=os.geteuid(), warn=warnings.append)
    except PrewarmError as error:
        return [], [Miss(None, error)]
    present = Present(wanted.interpreter)
    started: list[Started] = []
    misses: list[Miss] = []
    for model in wanted.models:
        try:
            found = _choose(model, wanted, published, present, environ)
        except PrewarmError as error:
            misses.append(Miss(model, error))
            continue
        if found.caveat is not None:
            misses.append(Miss(model, found.caveat))
            if wanted.on_miss == "eager" and found.caveat.code == "declaration_changed":
                # What an eager start is for: what changed is not compiled before the first answer.
                continue
        started.append(found)
    return started, misses


def _choose(
    model: str,
    wanted: Wanted,
    published: Sequence[Published],
    present: Present,
    environ: Mapping[str, str],
) -> Started:
    candidates, caveat = candidates_for(model, published)
    # Without a bundle an eager start sets this itself, and the env file may be read before us.
    own = EAGER_VARIABLES if wanted.on_miss == "eager" else {}
    fatal = fatal_variables(environ, device=device_of(candidates[0]), own=own)
    if fatal:
        raise NotWarm(
            f"{model}: {sentences(fatal)}; unset {'it' if len(fatal) == 1 else 'them'} for this "
            "server",
            code="fatal_variable",
        )
    chosen = choose(model, candidates, present)
    if caveat is not None:
        return Started(model, chosen, NotWarm(f"{model}: {caveat}"))
    off = mends_off(environ, chosen.entry.requires)
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


def _changed(wanted: Wanted, chosen: Published) -> tuple[Difference, ...] | None:
    if wanted.registry is None:
        return None
    # Without a registry, as on most deployments, nothing of its side is imported.
    from prewarm.deploy.registry_now import changed_since

    return changed_since(chosen.entry, wanted.registry)


def _bundle(wanted: Wanted, found: Started) -> BundleFile:
    bundle = found.published.entry.bundle
    return BundleFile(
        sha256=bundle.sha256,
        size_bytes=bundle.size_bytes,
        unpacked_bytes=bundle.unpacked_bytes,
        files=bundle.files,
        cache_dir=wanted.cache_dir,
    )
