"""``prewarm.activate``: what ``prewarm exec`` does before a server, done by the server itself.

Owns the order: the hook (or the directory of one that ran before), the variables, the shim. Which
of it torch still takes note of is ``torchside``'s to say.

- Where ``PREWARM_DIR`` is set and no ``into`` is given, a hook has run before: then ``env.json``,
  the standard library and torch are all that is needed.
- A cache takes no service down: what speaks against a warm start is a warning, unless ``on_miss``
  is "fail".
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prewarm.deploy.env_file import merged_python_path
from prewarm.deploy.filled import entry_of, read_filled
from prewarm.deploy.hook_directory import default_into
from prewarm.deploy.outcome import EAGER_VARIABLES, TIMEOUT_S, OnMiss, Outcome, Wanted
from prewarm.deploy.private import SHIM
from prewarm.deploy.running_torchside import torchside_module
from prewarm.deploy.select import named
from prewarm.errors import NotWarm, PrewarmError, PrewarmWarning, TooLate

#: What a hook in this process needs beside the standard library, and what for.
_NEEDED = {
    "zstandard": "to unpack bundles",
    "cryptography": "to check signatures",
    "pydantic": "to read a declaration",
}

_IMPORTED_BEFORE = (
    "torch was imported before prewarm.activate(): the caches are used all the same, but the start "
    "report begins only here; call it before torch is imported"
)

Paths = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Activation:
    """What a process starts from.

    ``directory`` is the private directory, None where nothing was found; ``misses`` is what speaks
    against a warm start, ``notes`` what else there is to tell. ``entries`` are the manifest entries
    of the models that have a bundle here, ``elsewhere`` those of others, in another environment.
    """

    models: tuple[str, ...]
    directory: Path | None
    misses: tuple[PrewarmError, ...]
    notes: tuple[str, ...] = ()
    entries: tuple[Mapping[str, Any], ...] = field(repr=False, default=())
    elsewhere: tuple[Mapping[str, Any], ...] = field(repr=False, default=())

    @property
    def warm(self) -> bool:
        """Whether nothing speaks against a warm start of all models."""
        return self.directory is not None and not self.misses

    def warn(self, *, stacklevel: int) -> None:
        """Warn of all of it; ``stacklevel`` as in ``warnings.warn``, counted from the caller."""
        for text in (*self.notes, *map(str, self.misses)):
            warnings.warn(text, PrewarmWarning, stacklevel=stacklevel + 1)


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of ``activate`` as they were given."""

    into: Paths | None
    manifest: Paths | None
    on_miss: OnMiss
    registry: Paths | None
    trust: tuple[str, ...]
    wait_s: float
    timeout_s: float


def activate(
    *models: str,
    into: Paths | None = None,
    manifest: Paths | None = None,
    on_miss: OnMiss = "cold",
    registry: Paths | None = None,
    trust: Sequence[str] = (),
    wait_s: float = 0.0,
    timeout_s: float = TIMEOUT_S,
) -> Activation:
    """Make torch start warm in this process; call it before torch is used.

    Does what ``prewarm exec MODEL...`` does before a command: runs the hook, sets the variables in
    ``os.environ`` and starts the shim. The options are those of ``prewarm hook``. Where
    ``PREWARM_DIR`` is set and no ``into`` is given, the directory of a former hook is used as it
    is. Several models that share a process are named in one call.

    What speaks against a warm start is a ``PrewarmWarning``, and the process starts cold (or, with
    ``on_miss`` "eager", without compiling).

    Raises:
        PrewarmError: with ``on_miss`` "fail" only, the first thing against a warm start.
        TooLate: with ``on_miss`` "fail", torch has compiled in this process already.
    """
    if not models:
        raise TypeError("activate() needs the name of a model")
    asked = Asked(into, manifest, on_miss, registry, tuple(trust), wait_s, timeout_s)
    activation = arrange(models, asked)
    activation.warn(stacklevel=2)
    return activation


def arrange(models: tuple[str, ...], asked: Asked) -> Activation:
    """Do the work of ``activate`` and leave the warning to the caller.

    Raises:
        PrewarmError: with ``on_miss`` "fail" only.
    """
    before = dict(os.environ)
    directory = before.get("PREWARM_DIR") if asked.into is None else None
    if directory:
        found, variables = _hooked_before(models, Path(directory), asked.on_miss)
    else:
        found, variables = _hooked_now(models, asked)
    _refuse(found.misses, asked.on_miss)
    try:
        late, notes = _set(variables, before)
    except TooLate as error:
        _refuse((error,), asked.on_miss)
        return replace(found, directory=None, misses=(*found.misses, error))
    _refuse(late, asked.on_miss)
    return replace(found, misses=(*found.misses, *late), notes=(*found.notes, *notes))


def _refuse(misses: Sequence[PrewarmError], on_miss: OnMiss) -> None:
    if misses and on_miss == "fail":
        raise misses[0]


def _hooked_before(
    models: tuple[str, ...], directory: Path, on_miss: OnMiss
) -> tuple[Activation, dict[str, str]]:
    """Take the directory of a hook that ran before as it is."""
    eager = EAGER_VARIABLES if on_miss == "eager" else {}
    try:
        env_json, _ = read_filled(directory)
        python_path = merged_python_path(directory / SHIM, os.environ.get("PYTHONPATH"))
    except PrewarmError as error:
        return Activation(models, None, (error,)), dict(eager)
    entries = [(model, entry_of(env_json, model)) for model in models]
    misses = tuple(
        NotWarm(
            f"{model}: {directory} (PREWARM_DIR) was filled for {_names(env_json)}; name all "
            "models of this process in one hook, or in one activate() with an `into`",
            code="not_published",
        )
        for model, entry in entries
        if entry is None
    )
    variables = {
        **{name: str(directory / place) for name, place in env_json["caches"].items()},
        **{str(name): str(value) for name, value in env_json["variables"].items()},
        "PREWARM_DIR": str(directory),
        # For the children that compile for this process.
        "PYTHONPATH": python_path,
        **(eager if misses else {}),
    }
    known = tuple(entry for _, entry in entries if entry is not None)
    return Activation(models, directory, misses, entries=known), variables


def _hooked_now(models: tuple[str, ...], asked: Asked) -> tuple[Activation, dict[str, str]]:
    """Run the hook in this process."""
    try:
        outcome = _run_hook(models, asked)
    except PrewarmError as error:
        eager = EAGER_VARIABLES if asked.on_miss == "eager" else {}
        return Activation(models, None, (error,)), dict(eager)
    directory = outcome.prepared.tree.parent if outcome.prepared is not None else None
    misses = tuple(miss.error for miss in outcome.misses)
    entries = tuple(found.published.entry.to_dict() for found in outcome.started)
    have = {found.model for found in outcome.started}
    elsewhere = [named(outcome.published, model) for model in models if model not in have]
    found = Activation(
        models,
        directory,
        misses,
        tuple(outcome.warnings),
        entries,
        tuple(one[0].entry.to_dict() for one in elsewhere if one),
    )
    return found, dict(outcome.variables)


def _run_hook(models: tuple[str, ...], asked: Asked) -> Outcome:
    try:
        from prewarm.deploy.hook import run_hook

        return run_hook(_wanted(models, asked), os.environ)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in _NEEDED:
            raise
        raise PrewarmError(
            f"activate() runs the hook in this process, which needs the package {name} here "
            f"{_NEEDED[name]}; install it, or run `prewarm hook {' '.join(models)} --into DIR` "
            "before this process and set PREWARM_DIR=DIR, which needs neither",
            code="missing_package",
        ) from error


def _wanted(models: tuple[str, ...], asked: Asked) -> Wanted:
    from prewarm.config import load_settings
    from prewarm.deploy.address import address_of
    from prewarm.deploy.reports_to import reports_to

    flags: dict[str, object | None] = {"registry": _path(asked.registry), "trust": asked.trust}
    settings = load_settings(flags, os.environ)
    named = settings.manifest if asked.manifest is None else os.fspath(asked.manifest)
    address = settings.cache_dir if named is None else address_of(named)
    into = Path(asked.into) if asked.into is not None else default_into(models, os.environ)
    return Wanted(
        models=models,
        into=into.absolute(),
        manifest=address,
        interpreter=(),
        on_miss=asked.on_miss,
        registry=settings.registry,
        trust=settings.trust,
        token_file=settings.token_file,
        wait_s=asked.wait_s,
        timeout_s=asked.timeout_s,
        reports=reports_to(address, settings),
    )


def _set(
    variables: Mapping[str, str], before: Mapping[str, str]
) -> tuple[tuple[PrewarmError, ...], tuple[str, ...]]:
    """Set the variables and start the shim; return which came too late for torch, and what to tell.

    Raises:
        TooLate: torch has compiled before; nothing is set.
    """
    changed = [name for name, value in variables.items() if before.get(name) != value]
    late = torchside_module("upstream_late")
    state = late.how_far()
    if changed and state == late.COMPILED:
        raise TooLate(
            "torch has compiled in this process already, so its caches cannot be changed any more; "
            "call prewarm.activate() (or load()) before anything is compiled"
        )
    os.environ.update(variables)
    torchside_module("shim").start(os.environ)
    if not changed or state == late.ABSENT:
        return (), ()
    left: Iterable[str] = late.make_up(variables, changed)
    if left:
        error = TooLate(
            f"torch was imported before prewarm.activate(), and does not read {', '.join(left)} "
            "any more; call it before torch is imported"
        )
        return (error,), ()
    return (), (_IMPORTED_BEFORE,)


def _names(env_json: Mapping[str, Any]) -> str:
    return ", ".join(str(entry.get("model")) for entry in env_json["entries"]) or "no model"


def _path(given: Paths | None) -> Path | None:
    return None if given is None else Path(given)
