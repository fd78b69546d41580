"""Which published entry a deployment starts from.

Pure: the manifests are read, the paths digested and the present environment gathered elsewhere. A
model that is not published, and an environment that differs from each published one, are told in
one sentence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from prewarm.deploy.published import Published
from prewarm.environment import Difference, Environment, compare
from prewarm.errors import EnvironmentDiffers, NotWarm
from prewarm.store.manifest import ManifestEntry

#: A sentence names this many differing facts and counts the rest.
TOLD_DIFFERENCES = 3

#: Facts that differ because another one does, and would only repeat it.
_IMPLIED_BY = {
    "capability": "device",
    "sm_count": "device",
    "torch_git": "torch",
    "cxx_version": "cxx",
}


def named(published: Iterable[Published], name: str) -> tuple[Published, ...]:
    """Return the entries whose model or alias is ``name``."""
    wanted = name.strip("/")
    return tuple(
        found for found in published if wanted in (found.entry.model, *found.entry.aliases)
    )


def with_checkpoint(published: Iterable[Published], digest: str) -> tuple[Published, ...]:
    """Return the entries of checkpoints with just this content."""
    return tuple(found for found in published if found.entry.checkpoint == digest)


def with_architecture(published: Iterable[Published], digest: str) -> tuple[Published, ...]:
    """Return the entries that share an architecture; none is proven for other weights."""
    return tuple(found for found in published if found.entry.architecture == digest)


def choose(
    model: str,
    candidates: tuple[Published, ...],
    present: Callable[[Published], Environment],
) -> Published:
    """Return the candidate whose environment is the present one, warm before partial, newest first.

    Raises:
        EnvironmentDiffers: there is none; the message names the nearest one's differences.
    """
    compared = [(compare(found.environment, present(found)), found) for found in candidates]
    equal = [found for differences, found in compared if not differences]
    if equal:
        return max(equal, key=lambda found: (found.entry.status == "warm", found.generated_at))
    differences, nearest = min(compared, key=lambda pair: len(pair[0]))
    others = len({found.environment.id for found in candidates}) - 1
    raise EnvironmentDiffers(_differs(model, differences, nearest, others))


def without_own_variables(present: Environment, published: Published) -> Environment:
    """Return the present environment less the variables that the entry's own env file sets.

    A unit that reads its env file before the hook runs, as at every start but the first, has them.
    """
    own = published.entry.variables.keys()
    recorded = json.loads(published.environment.get("variables") or "{}")
    variables = json.loads(present.get("variables") or "{}")
    kept = {name: value for name, value in variables.items() if name in recorded or name not in own}
    if kept == variables:
        return present
    return Environment.from_facts(
        present.to_dict() | {"variables": json.dumps(kept, sort_keys=True)}
    )


def not_published(model: str, published: Iterable[Published]) -> NotWarm:
    """Return the error for a model that no manifest names, with the nearest name."""
    import difflib

    names = sorted({name for found in published for name in _names(found.entry)})
    near = difflib.get_close_matches(model.strip("/"), names, n=1, cutoff=0.6)
    if near:
        hint = f"did you mean {near[0]}?"
    elif names:
        hint = f"{len(names)} names are published, such as {names[0]}; see `prewarm status`"
    else:
        hint = "nothing is published yet; run `prewarm scan`"
    return NotWarm(f"{model}: no manifest names this model; {hint}", code="not_published")


def _names(entry: ManifestEntry) -> tuple[str, ...]:
    return (entry.model, *entry.aliases)


def _differs(
    model: str, differences: tuple[Difference, ...], nearest: Published, others: int
) -> str:
    facts = {difference.fact for difference in differences}
    told = [found for found in differences if _IMPLIED_BY.get(found.fact) not in facts]
    parts = [_sentence(found, nearest) for found in told[:TOLD_DIFFERENCES]]
    if len(told) > TOLD_DIFFERENCES:
        rest = ", ".join(found.fact for found in told[TOLD_DIFFERENCES:])
        parts.append(f"also different: {rest}")
    if others:
        parts.append(f"{others} more published environments differ in more facts")
    return f"{model}: {'; '.join(parts)}"


def _sentence(difference: Difference, nearest: Published) -> str:
    if difference.fact == "cxx" and difference.present is None:
        when = "a CPU start" if nearest.environment.get("device") == "cpu" else "the start"
        return (
            f"no C++ compiler is here (built with {difference.recorded}), and {when} needs one "
            f"even on a perfect hit; install {difference.recorded} or set CXX"
        )
    return f"{difference.sentence()} (cost: {difference.cost})"
