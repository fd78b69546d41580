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

from prewarm.deploy.address import directory_of
from prewarm.deploy.candidates import Present
from prewarm.deploy.choosing import choose_start
from prewarm.deploy.deployment_file import point_deployment, start_variables
from prewarm.deploy.outcome import EAGER_VARIABLES, Miss, Outcome, Started, Wanted
from prewarm.deploy.private import BundleFile, prepare
from prewarm.deploy.published import read_published
from prewarm.errors import NotWarm, PrewarmError
from prewarm.store.command_path import require_command_path
from prewarm.store.leases import mark_used
from prewarm.store.trusted_keys import trusted_keys


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
            mark_used(
                (directory_of(wanted.manifest), found.published.entry.bundle.sha256)
                for found in started
            )
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
        published = read_published(
            directory_of(wanted.manifest),
            uid=os.geteuid(),
            warn=warnings.append,
            keys=trusted_keys(wanted.trust),
        )
    except PrewarmError as error:
        return [], [Miss(None, error)]
    present = Present(wanted.interpreter)
    started: list[Started] = []
    misses: list[Miss] = []
    for model in wanted.models:
        try:
            found = choose_start(model, wanted, published, present, environ)
            _refuse_conflicts(found, started)
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


def _bundle(wanted: Wanted, found: Started) -> BundleFile:
    bundle = found.published.entry.bundle
    return BundleFile(
        sha256=bundle.sha256,
        size_bytes=bundle.size_bytes,
        unpacked_bytes=bundle.unpacked_bytes,
        files=bundle.files,
        cache_dir=directory_of(wanted.manifest),
    )
