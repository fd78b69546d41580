"""The pre-start hook: from the names of models to an environment in which a server starts warm.

Owns the order: read what is published and trusted, choose by model and present environment, make
the private tree right, point the deployment at it. Each step is another file's.

- A model that is not warm here is a ``Miss``: told, and by ``on_miss`` a failure, a cold start or
  an eager one. A cache never takes a service down: with ``cold`` and ``eager`` nothing else does.
- An env file is always written, so that ``EnvironmentFile=`` finds one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prewarm.deploy.candidates import Present, candidates_for, device_of
from prewarm.deploy.current import point_at, remove_unused, write_changed
from prewarm.deploy.env_file import Dialect, env_text, merged_python_path
from prewarm.deploy.fatal_variables import fatal_variables, mends_off
from prewarm.deploy.private import SHIM, BundleFile, Prepared, prepare
from prewarm.deploy.published import Published, read_published
from prewarm.deploy.select import choose, sentences
from prewarm.environment import Difference
from prewarm.errors import NotWarm, PrewarmError
from prewarm.store.command_path import require_command_path
from prewarm.store.leases import mark_used

OnMiss = Literal["cold", "eager", "fail"]

#: What an eager start sets. torch.compile looks at this variable and leaves the function as it is
#: (torch/_dynamo/eval_frame.py).
EAGER_VARIABLES = {"TORCHDYNAMO_DISABLE": "1"}


#: What may change a graph without changing torch's key for it: an operator's or a pass's own code
#: (pytorch #187319). A bundle from before it would answer as the old code did.
UNGUARDED = frozenset({"source", "architecture", "[model] setup"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a deployment asks for; with a registry its declarations are looked at too."""

    models: tuple[str, ...]
    into: Path
    cache_dir: Path
    interpreter: tuple[str, ...]
    on_miss: OnMiss
    registry: Path | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """One model that has a bundle here; ``caveat`` says why it is less than proven warm."""

    model: str
    published: Published
    caveat: PrewarmError | None


@dataclass(frozen=True, slots=True)
class Miss:
    """One model, or everything (``model`` None), that does not start warm, and why."""

    model: str | None
    error: PrewarmError


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the hook did: the variables to start with, and what was missed."""

    variables: dict[str, str]
    started: tuple[Started, ...]
    misses: tuple[Miss, ...]
    prepared: Prepared | None
    warnings: tuple[str, ...]


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
            variables = _variables(wanted, prepared, started, environ, warnings)
            variables |= eager if len(started) < len(wanted.models) else {}
            _point(prepared, started, variables)
            mark_used((wanted.cache_dir, found.published.entry.bundle.sha256) for found in started)
        except PrewarmError as error:
            if wanted.on_miss == "fail":
                raise
            misses.append(Miss(None, error))
            prepared, started, variables = None, [], dict(eager)
    return Outcome(variables, tuple(started), tuple(misses), prepared, tuple(warnings))


def missed(error: Exception, on_miss: OnMiss) -> Outcome:
    """Return the outcome of a hook that could not run at all: a start without a bundle."""
    if not isinstance(error, PrewarmError):
        text = f"internal error: {type(error).__name__}: {error}"
        error = PrewarmError(f"{text}; please report it", code="internal")
    variables = dict(EAGER_VARIABLES) if on_miss == "eager" else {}
    return Outcome(variables, (), (Miss(None, error),), None, ())


def write_env_file(
    path: Path, variables: Mapping[str, str], dialect: Dialect, models: Sequence[str]
) -> None:
    """Write the env file whole and readable by all; without variables it holds a comment.

    Raises:
        NotWritable: its directory cannot be written.
        ConfigError: a value cannot stand in an env file.
    """
    write_changed(path, env_text(variables, dialect, comment=comment(variables, models)).encode())


def comment(variables: Mapping[str, str], models: Sequence[str]) -> str:
    """Return the first line of an env file."""
    names = " ".join(models)
    if not variables:
        return f"prewarm: {names}: nothing to set, this start is cold"
    return f"prewarm: {names}"


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


def _variables(
    wanted: Wanted,
    prepared: Prepared,
    started: Sequence[Started],
    environ: Mapping[str, str],
    warnings: list[str],
) -> dict[str, str]:
    variables: dict[str, str] = {}
    for found in started:
        for name, value in found.published.entry.variables.items():
            if variables.setdefault(name, value) != value:
                warnings.append(
                    f"{found.model}: was proven with {name}={value}, another model with "
                    f"{variables[name]}, which is set; start them in processes of their own"
                )
    return variables | {
        "TORCHINDUCTOR_CACHE_DIR": str(prepared.tree / "inductor"),
        "TRITON_CACHE_DIR": str(prepared.tree / "triton"),
        "PREWARM_DIR": str(wanted.into),
        "PYTHONPATH": merged_python_path(wanted.into / SHIM, environ.get("PYTHONPATH")),
    }


def _point(
    prepared: Prepared,
    started: Sequence[Started],
    variables: Mapping[str, str],
) -> None:
    models = [found.model for found in started]
    env = env_text(variables, "systemd", comment=comment(variables, models))
    fixed = {
        name: value
        for name, value in variables.items()
        if name not in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "PREWARM_DIR", "PYTHONPATH")
    }
    env_json = {
        "format": 1,
        # Relative to the directory that holds this file, which a pod may see under another path.
        "caches": {
            "TORCHINDUCTOR_CACHE_DIR": f"{prepared.tree.name}/inductor",
            "TRITON_CACHE_DIR": f"{prepared.tree.name}/triton",
        },
        "variables": fixed,
        "entries": [found.published.entry.to_dict() for found in started],
        "environments": {
            found.published.entry.environment: found.published.environment.to_dict()
            for found in started
        },
    }
    text = json.dumps(env_json, indent=1, sort_keys=True) + "\n"
    point_at(prepared.tree, env=env.encode(), env_json=text.encode())
    remove_unused(prepared.tree, now_s=time.time())
