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

from prewarm.deploy.current import point_at, remove_unused, write_changed
from prewarm.deploy.env_file import Dialect, env_text, merged_python_path
from prewarm.deploy.private import SHIM, BundleFile, Prepared, prepare
from prewarm.deploy.published import Published, read_published
from prewarm.deploy.select import choose, named, not_published, without_own_variables
from prewarm.environment import Environment
from prewarm.errors import NotWarm, PrewarmError
from prewarm.present import present_environment

OnMiss = Literal["cold", "eager", "fail"]

#: What an eager start sets. torch.compile looks at this variable and leaves the function as it is
#: (torch/_dynamo/eval_frame.py).
EAGER_VARIABLES = {"TORCHDYNAMO_DISABLE": "1"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a deployment asks for."""

    models: tuple[str, ...]
    into: Path
    cache_dir: Path
    interpreter: tuple[str, ...]
    on_miss: OnMiss


@dataclass(frozen=True, slots=True)
class Started:
    """One model that has a bundle here; ``caveat`` says why it is less than proven warm."""

    model: str
    published: Published
    caveat: str | None


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
    started, misses = _choose_all(wanted, warnings)
    if misses and wanted.on_miss == "fail":
        raise misses[0].error
    # A model that has a bundle starts from it even if something compiles; without one it is eager.
    eager = EAGER_VARIABLES if wanted.on_miss == "eager" else {}
    prepared = None
    variables = dict(eager)
    if started:
        try:
            prepared = prepare(wanted.into, [_bundle(wanted, found) for found in started])
            variables = _variables(wanted, prepared, started, environ, warnings)
            variables |= eager if len(started) < len(wanted.models) else {}
            _point(prepared, started, variables)
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


def _choose_all(wanted: Wanted, warnings: list[str]) -> tuple[list[Started], list[Miss]]:
    try:
        published = read_published(wanted.cache_dir, uid=os.geteuid(), warn=warnings.append)
    except PrewarmError as error:
        return [], [Miss(None, error)]
    present = _Present(wanted.interpreter)
    started: list[Started] = []
    misses: list[Miss] = []
    for model in wanted.models:
        try:
            found = _choose(model, published, present)
        except PrewarmError as error:
            misses.append(Miss(model, error))
            continue
        started.append(found)
        if found.caveat is not None:
            misses.append(Miss(model, NotWarm(f"{model}: {found.caveat}")))
    return started, misses


def _choose(model: str, published: Sequence[Published], present: _Present) -> Started:
    candidates, caveat = named(published, model), None
    if not candidates and _is_path(model):
        # The registry's side is slow to import, and a name that is published does not need it.
        from prewarm.deploy.by_path import published_for_path

        candidates, caveat = published_for_path(Path(model), published)
    if not candidates:
        raise not_published(model, published)
    chosen = choose(model, candidates, present)
    if caveat is None and chosen.entry.status != "warm":
        caveat = chosen.entry.reason or f"is {chosen.entry.status}"
    return Started(model, chosen, caveat)


def _is_path(model: str) -> bool:
    # Not Path.exists, which raises for a name that is too long.
    return os.path.lexists(model)


class _Present:
    """The environment present for an entry's kind of model, gathered once for each kind."""

    def __init__(self, interpreter: tuple[str, ...]) -> None:
        self._interpreter = interpreter
        self._gathered: dict[tuple[str, int, str], Environment] = {}

    def __call__(self, published: Published) -> Environment:
        recorded = published.environment
        device = "cpu" if recorded.get("device") == "cpu" else "cuda"
        library = (recorded.get("library") or "").split(" ")[0]
        kind = (device, published.threads, library)
        if kind not in self._gathered:
            self._gathered[kind] = present_environment(
                self._interpreter, device=device, threads=published.threads, library=library
            )
        return without_own_variables(self._gathered[kind], published)


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
