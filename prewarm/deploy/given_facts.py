"""Choosing an entry where the server's machine cannot be seen, by facts that are given.

Pure. For an init container without a GPU or the server's interpreter: ``--for device=… torch=…``.
What is not given is not compared here; the shim compares all of it where the server starts.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence

from prewarm.deploy.published import Published
from prewarm.environment import Environment, told_apart, variables_of
from prewarm.errors import ConfigError, EnvironmentDiffers

_TOLD_VALUES = 3


def choose_for(model: str, candidates: Sequence[Published], facts: Mapping[str, str]) -> Published:
    """Return the candidate whose environment has these facts, warm before partial, newest first.

    An empty value stands for a fact that is not there, such as a variable that is not set.

    Raises:
        ConfigError: a fact has no such name.
        EnvironmentDiffers: none has these facts, or several environments have.
    """
    environments = {found.environment.id: found.environment for found in candidates}
    _check_names(facts, environments.values())
    fitting = {
        id_: environment
        for id_, environment in environments.items()
        if all(_value(environment, name) == value for name, value in facts.items())
    }
    if not fitting:
        raise EnvironmentDiffers(f"{model}: {_nowhere(facts, environments.values())}")
    if len(fitting) > 1:
        apart = told_apart(fitting)
        choices = "; or ".join(sorted(_as_options(differing) for differing in apart.values()))
        raise EnvironmentDiffers(
            f"{model}: is published for {len(fitting)} environments with these facts; "
            f"add {choices}",
            code="environment_unclear",
        )
    there = [found for found in candidates if found.environment.id in fitting]
    newest_first = sorted(there, key=lambda found: found.generated_at, reverse=True)
    return min(newest_first, key=lambda found: found.entry.status != "warm")


def _value(environment: Environment, name: str) -> str:
    return environment.get(name) or variables_of(environment).get(name) or ""


def _check_names(facts: Mapping[str, str], environments: Iterable[Environment]) -> None:
    known = {
        name
        for environment in environments
        for name in (*environment.to_dict(), *variables_of(environment))
    }
    for name in facts:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}"
            raise ConfigError(f"--for {name}: is no fact of an environment; {hint}", code="usage")


def _nowhere(facts: Mapping[str, str], environments: Collection[Environment]) -> str:
    for name, value in facts.items():
        published = sorted({_value(environment, name) or "none" for environment in environments})
        if (value or "none") not in published:
            wanted = f"{name} {value}" if value else f"no {name}"
            return f"no environment with {wanted} is published; {name} is {_or(published)} there"
    together = ", ".join(f"{name} {value}" for name, value in facts.items())
    return f"no one environment with {together} is published; see `prewarm status` on the builder"


def _or(values: Sequence[str]) -> str:
    shown = " or ".join(values[:_TOLD_VALUES])
    more = len(values) - _TOLD_VALUES
    return f"{shown} or one of {more} more" if more > 0 else shown


def _as_options(facts: Mapping[str, str | None]) -> str:
    return " ".join(
        f"--for {shlex.quote(f'{name}={value or str()}')}" for name, value in facts.items()
    )
