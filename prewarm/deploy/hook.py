"""The pre-start hook: from the names of models to an environment in which a server starts warm.

Owns the order: read what is published and trusted, choose by model and present environment, wait
for what is missing if that is asked for, make the private tree right, point the deployment at it.
Each step is another file's.

- A model that is not warm here is a ``Miss``: told, and by ``on_miss`` a failure, a cold start or
  an eager one. A cache never takes a service down: with ``cold`` and ``eager`` nothing else does.
- An env file is always written, so that ``EnvironmentFile=`` finds one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from prewarm.deploy.choosing import Choosing
from prewarm.deploy.deadline import Deadline
from prewarm.deploy.deployment_file import point_deployment, start_variables
from prewarm.deploy.keep import keep_for
from prewarm.deploy.opened_source import open_source
from prewarm.deploy.outcome import EAGER_VARIABLES, Miss, Outcome, Started, Tell, Wanted
from prewarm.deploy.private import BundleFile, prepare
from prewarm.deploy.source import Source
from prewarm.errors import PrewarmError
from prewarm.store.command_path import require_command_path
from prewarm.store.leases import mark_used


def run_hook(wanted: Wanted, environ: Mapping[str, str], *, tell: Tell = lambda _: None) -> Outcome:
    """Prepare the private directory for the models and return the variables to start with.

    ``tell`` gets how far it is.

    Raises:
        PrewarmError: with ``on_miss`` "fail" only, the first thing against a warm start.
    """
    warnings: list[str] = []
    deadline = Deadline(wanted.timeout_s)
    try:
        source = open_source(
            wanted.manifest,
            keep_for(environ, wanted.into),
            deadline,
            trust=wanted.trust,
            token_file=wanted.token_file,
            tell=tell,
        )
    except PrewarmError as error:
        if wanted.on_miss == "fail":
            raise
        return Outcome(_eager(wanted), (), (Miss(None, error),), None, ())
    choosing = Choosing(wanted, environ, source)
    started, misses = choosing.run(warnings)
    if misses and wanted.wait_s:
        # What is waited for is imported by who waits.
        from prewarm.deploy.waiting import wait_for

        began_s = time.monotonic()
        deadline.extend(wanted.wait_s)
        started, misses = wait_for(choosing, (started, misses), warnings, tell)
        deadline.extend(time.monotonic() - began_s - wanted.wait_s)
    source.remember()
    if misses and wanted.on_miss == "fail":
        raise misses[0].error
    # A model that has a bundle starts from it even if something compiles; without one it is eager.
    eager = _eager(wanted)
    prepared = None
    variables = dict(eager)
    if started:
        try:
            require_command_path(wanted.into, flag="--into")
            bundles = [_bundle(source, found) for found in started]
            prepared = prepare(wanted.into, bundles, at_hand=source.at_hand)
            variables = start_variables(prepared, started, environ, warnings)
            variables |= eager if len(started) < len(wanted.models) else {}
            point_deployment(prepared, started, variables, wanted.reports)
            mark_used((bundle.cache_dir, bundle.sha256) for bundle in bundles)
            source.remember()
        except PrewarmError as error:
            if wanted.on_miss == "fail":
                raise
            misses.append(Miss(None, error))
            prepared, started, variables = None, [], dict(eager)
    return Outcome(
        variables, tuple(started), tuple(misses), prepared, tuple(warnings), choosing.published
    )


def _eager(wanted: Wanted) -> dict[str, str]:
    return dict(EAGER_VARIABLES) if wanted.on_miss == "eager" else {}


def _bundle(source: Source, found: Started) -> BundleFile:
    bundle = found.published.entry.bundle
    return BundleFile(
        sha256=bundle.sha256,
        size_bytes=bundle.size_bytes,
        unpacked_bytes=bundle.unpacked_bytes,
        files=bundle.files,
        cache_dir=source.cache_dir(),
    )
