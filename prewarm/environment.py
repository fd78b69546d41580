"""The environment: every fact outside the model that decides a hit, and how two compare.

Pure. The facts are gathered without torch by ``torchside/facts.py`` under the deployment's
interpreter; builder, hook, ``explain`` and ``doctor`` share this one comparison.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

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
    "cpu_isa": "a full compile of the C++ kernels",
    "python_abi": "the C++ kernels are compiled again",
    "build_paths": "the C++ kernels are compiled again: Python or torch lies at another path",
    "cxx": "the C++ kernels are compiled again",
    "cxx_version": "the C++ kernels are compiled again",
    "threads": "a full compile: the thread count is part of the generated code's key",
    "variables": "a full compile where the variable is part of the key",
}

#: Facts that are recorded for people and change no hit.
INFORMATIVE = ("python", "driver")


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that differs: what was recorded, what is present (None: not there), its cost."""

    fact: str
    recorded: str | None
    present: str | None
    cost: str

    def sentence(self) -> str:
        """Say the difference in one plain sentence without a full stop."""
        if self.fact == "variables":
            return _told_variables(_mapping(self.recorded), _mapping(self.present))
        name = self.fact.replace("_", " ")
        here, there = _told(self.present), _told(self.recorded)
        return f"{name} is {here} here, the bundle was built with {there}"


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
    """Return every decisive fact that differs, the most telling first.

    On a CPU the driver's facts do not matter; on a GPU the CPU's instruction set and compiler still
    do, since the wrapper code around the kernels may be C++.
    """
    ours, theirs = recorded.to_dict(), present.to_dict()
    names = [*COSTS, *sorted((ours.keys() | theirs.keys()) - COSTS.keys() - set(INFORMATIVE))]
    return tuple(
        Difference(name, ours.get(name), theirs.get(name), COSTS.get(name, "a full compile"))
        for name in names
        if ours.get(name) != theirs.get(name)
    )


def _told_variables(recorded: Mapping[str, str], present: Mapping[str, str]) -> str:
    """Name only the variables that differ: the rest of the two texts is alike and long."""
    told = []
    for name in sorted(recorded.keys() | present.keys()):
        if recorded.get(name) == present.get(name):
            continue
        here = repr(present[name]) if name in present else "not set"
        there = f"with {recorded[name]!r}" if name in recorded else "without it"
        told.append(f"{name} is {here} here, the bundle was built {there}")
    return ", and ".join(told)


def _mapping(text: str | None) -> dict[str, str]:
    found: dict[str, str] = json.loads(text or "{}")
    return found


def _told(value: str | None) -> str:
    return "not there" if value is None else (value or "empty")
