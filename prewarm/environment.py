"""The environment: every fact outside the model that decides a hit, and how two compare.

Pure. The facts are gathered without torch by ``torchside/facts.py`` under the deployment's
interpreter; builder, hook, ``explain`` and ``doctor`` share this one comparison. A ``Difference``
is how every fact that differs is told, whoever compared it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import permutations

#: Facts that decide a hit, in the order in which they are told, each with what a difference costs.
COSTS: dict[str, str] = {
    "device": "refused: kernels of another device may compute garbage",
    "capability": "refused: kernels of another device may compute garbage",
    "sm_count": "refused: kernels were tuned for another device",
    "torch": "a full compile",
    "torch_git": "a full compile",
    "triton": "a full compile",
    "cuda": "a full compile",
    "library": "may trace other graphs: a full compile of those",
    "machine": "refused: other machine code",
    "cpu_isa": "refused: graphs that hit get kernels of other vectors, and fail or answer wrongly",
    "python_abi": "the C++ kernels are compiled again",
    "python": "the C++ kernels are compiled again: another Python lies at another path",
    "build_paths": "the C++ kernels are compiled again: Python or torch lies at another path",
    "cxx": "the C++ kernels are compiled again",
    "cxx_version": "the C++ kernels are compiled again",
    "threads": "a full compile: the thread count is part of the generated code's key",
}

#: What it costs that no C++ compiler runs here: torch asks it for its version at each CPU start.
NO_COMPILER_COST = "no start on a CPU, which needs a C++ compiler even on a perfect hit"

#: What is said where the compiler's name or its version is not there.
_COMPILER = {"cxx": "no C++ compiler is", "cxx_version": "the C++ compiler does not run"}

#: What another value of a variable costs; each is a fact of its own name.
VARIABLE_COST = "a full compile where the variable is part of the key"

#: Facts that are recorded for people and change no hit by themselves. Another version of Python is
#: told where it is why the paths differ.
INFORMATIVE = ("python", "driver")

#: Facts that only follow from another one that differs, so that one change is told once. What
#: follows from a fact that is itself not told follows from what that one follows from.
_FOLLOWS: dict[str, tuple[str, ...]] = {
    "capability": ("device",),
    "sm_count": ("device",),
    "cpu_isa": ("machine",),
    "cxx_version": ("cxx", "machine"),
    "CXX": ("cxx",),
    "python_abi": ("machine",),
    "python": ("machine",),
    # Another Python brings packages of its own, and each of them lies at another path.
    "torch": ("python_abi",),
    "torch_git": ("torch", "python_abi"),
    "cuda": ("torch", "python_abi"),
    "triton": ("torch", "python_abi"),
    "library": ("python_abi",),
    "build_paths": ("torch", "python_abi", "python", "machine"),
}

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that differs: what was recorded, what is present (None: not there), its cost.

    ``fact`` is a fact of the environment, the name of a variable, or a declaration's own spelling
    (``[model] dtype``).
    """

    fact: str
    recorded: str | None
    present: str | None
    cost: str

    def sentence(self) -> str:
        """Say the difference in one plain sentence without a full stop."""
        shown = repr if _VARIABLE.fullmatch(self.fact) else _shown
        absent, where, name = "not there", "here", self.fact.replace("_", " ")
        if self.fact.startswith("["):
            absent, where, name = "not stated", "in prewarm.toml now", self.fact
        elif shown is repr:
            absent, name = "not set", self.fact
        here = absent if self.present is None else shown(self.present)
        built = "without it" if self.recorded is None else f"with {shown(self.recorded)}"
        if self.fact in _COMPILER and self.present is None:
            return f"{_COMPILER[self.fact]} here, the bundle was built {built}"
        return f"{name} is {here} {where}, the bundle was built {built}"

    def to_dict(self) -> dict[str, str | None]:
        """Return the difference as it stands in JSON."""
        return {
            "fact": self.fact,
            "recorded": self.recorded,
            "present": self.present,
            "cost": self.cost,
        }


@dataclass(frozen=True, slots=True)
class Environment:
    """Facts by name, sorted; a fact that is not there is None."""

    facts: tuple[tuple[str, str | None], ...]

    @classmethod
    def from_facts(cls, facts: Mapping[str, str | None]) -> Environment:
        """Build an environment from a mapping of facts."""
        return cls(tuple(sorted((str(name), value) for name, value in facts.items())))

    @property
    def id(self) -> str:
        """Digest of the facts that decide a hit (16 hex digits)."""
        decisive = {name: value for name, value in self.facts if name not in INFORMATIVE}
        text = json.dumps(decisive, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def get(self, fact: str) -> str | None:
        """Return one fact, or None if it is not there."""
        return dict(self.facts).get(fact)

    def to_dict(self) -> dict[str, str | None]:
        """Return the facts as they stand in a manifest."""
        return dict(self.facts)


def compare(recorded: Environment, present: Environment) -> tuple[Difference, ...]:
    """Return every decisive fact that differs, the most telling first; each variable is one.

    On a CPU the driver's facts do not matter; on a GPU the CPU's instruction set and compiler still
    do, since the wrapper code around the kernels may be C++.
    """
    ours, theirs = recorded.to_dict(), present.to_dict()
    known = {*COSTS, *INFORMATIVE, "variables"}
    names = [*COSTS, *sorted((ours.keys() | theirs.keys()) - known)]
    facts = tuple(
        Difference(name, ours.get(name), theirs.get(name), _cost(name, theirs.get(name)))
        for name in names
        if ours.get(name) != theirs.get(name)
    )
    if not _other_paths(ours, theirs):
        facts = tuple(found for found in facts if found.fact not in INFORMATIVE)
    return facts + _compare_variables(variables_of(recorded), variables_of(present))


def told_and_implied(
    differences: Iterable[Difference],
) -> tuple[tuple[Difference, ...], tuple[Difference, ...]]:
    """Part the differences that are told from those that only follow from one of them."""
    differences = tuple(differences)
    present = {found.fact: found.present for found in differences}

    def follows(found: Difference) -> bool:
        if found.fact == "CXX" and present.get("cxx", "") is None:
            return False  # it names what is not there
        if found.fact == "cxx_version" and found.present is None and present.get("cxx", ""):
            return False  # one that is there and does not run
        return not present.keys().isdisjoint(_FOLLOWS.get(found.fact, ()))

    return (
        tuple(found for found in differences if not follows(found)),
        tuple(found for found in differences if follows(found)),
    )


def told_apart(environments: Mapping[str, Environment]) -> dict[str, dict[str, str | None]]:
    """Return for each of several environments the facts that tell it from the others."""
    apart: dict[str, dict[str, str | None]] = {name: {} for name in environments}
    for one, other in permutations(environments, 2):
        told, _ = told_and_implied(compare(environments[other], environments[one]))
        apart[one] |= {found.fact: found.present for found in told}
    return apart


def short_of(apart: Mapping[str, str | None]) -> str:
    """Say in a few words what tells an environment from others, such as ``python 3.11.2``."""
    return ", ".join(_short(fact, value) for fact, value in apart.items())


def variables_of(environment: Environment) -> dict[str, str]:
    """Return the variables of an environment that change what is compiled."""
    found: dict[str, str] = json.loads(environment.get("variables") or "{}")
    return found


def with_variables(environment: Environment, keep: Callable[[str], bool]) -> Environment:
    """Return an environment with only the variables to keep."""
    variables = variables_of(environment)
    kept = {name: value for name, value in variables.items() if keep(name)}
    if kept == variables:
        return environment
    text = json.dumps(kept, sort_keys=True)
    return Environment.from_facts(environment.to_dict() | {"variables": text})


def _other_paths(recorded: Mapping[str, str | None], present: Mapping[str, str | None]) -> bool:
    """Tell whether both have torch, under Pythons of one ABI that lie at different paths."""
    paths = (recorded.get("build_paths"), present.get("build_paths"))
    same = recorded.get("python_abi") == present.get("python_abi")
    return same and None not in paths and paths[0] != paths[1]


def _compare_variables(
    recorded: Mapping[str, str], present: Mapping[str, str]
) -> tuple[Difference, ...]:
    return tuple(
        Difference(name, recorded.get(name), present.get(name), VARIABLE_COST)
        for name in sorted(recorded.keys() | present.keys())
        if recorded.get(name) != present.get(name)
    )


def _cost(fact: str, present: str | None) -> str:
    if fact in _COMPILER and present is None:
        return NO_COMPILER_COST
    return COSTS.get(fact, "a full compile")


def _short(fact: str, value: str | None) -> str:
    name = fact.replace("_", " ")
    if value is None:
        return f"no {name}"
    if fact in ("device", "library"):
        return value
    if _VARIABLE.fullmatch(fact):
        return f"{fact}={value}"
    return f"{name} {value.removeprefix('cpython ')}"


def _shown(value: str) -> str:
    return value or "empty"
