"""Which published entry a deployment starts from.

Pure: the manifests are read, the paths digested and the present environment gathered elsewhere. A
model that is not published, and an environment that differs from each published one, are told in
one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from prewarm.deploy.published import Published
from prewarm.environment import (
    Difference,
    Environment,
    compare,
    told_and_implied,
    variables_of,
    with_variables,
)
from prewarm.errors import EnvironmentDiffers, NotWarm
from prewarm.store.manifest import ManifestEntry

#: A sentence names this many differing facts and counts the rest.
TOLD_DIFFERENCES = 3


@dataclass(frozen=True, slots=True)
class Nearest:
    """The entry whose environment is nearest to the present one, and every fact that differs.

    ``others`` counts the other published environments.
    """

    published: Published
    differences: tuple[Difference, ...]
    others: int


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


def nearest(
    candidates: Sequence[Published], present: Callable[[Published], Environment]
) -> Nearest:
    """Return the candidate with the fewest differing facts, warm before partial, newest first."""
    compared = [(compare(found.environment, present(found)), found) for found in candidates]
    newest_first = sorted(compared, key=lambda pair: pair[1].generated_at, reverse=True)
    differences, found = min(
        newest_first,
        key=lambda pair: (
            len(told_and_implied(pair[0])[0]),
            len(pair[0]),
            pair[1].entry.status != "warm",
        ),
    )
    others = len({found.environment.id for found in candidates}) - 1
    return Nearest(found, differences, others)


def choose(
    model: str,
    candidates: Sequence[Published],
    present: Callable[[Published], Environment],
) -> Published:
    """Return the candidate whose environment is the present one, warm before partial, newest first.

    Raises:
        EnvironmentDiffers: there is none; the message names the nearest one's differences.
    """
    found = nearest(candidates, present)
    if found.differences:
        raise EnvironmentDiffers(_differs(model, found))
    return found.published


def without_own_variables(present: Environment, published: Published) -> Environment:
    """Return the present environment less the variables that the entry's own env file sets.

    A unit that reads its env file before the hook runs, as at every start but the first, has them.
    """
    own = published.entry.variables.keys()
    recorded = variables_of(published.environment)
    return with_variables(present, lambda name: name in recorded or name not in own)


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


def sentences(differences: Sequence[Difference], device: str | None = None) -> str:
    """Say what differs: the first facts with both values and what each costs, then only names."""
    told, implied = told_and_implied(differences)
    parts = [_sentence(found, device) for found in told[:TOLD_DIFFERENCES]]
    rest = [found.fact for found in (*told[TOLD_DIFFERENCES:], *implied)]
    if rest:
        parts.append(f"also different: {', '.join(rest)}")
    return "; ".join(parts)


def _differs(model: str, nearest: Nearest) -> str:
    told = sentences(nearest.differences, nearest.published.environment.get("device"))
    if nearest.others:
        more = "environment differs" if nearest.others == 1 else "environments differ"
        told += f"; {nearest.others} more published {more} in more facts"
    return f"{model}: {told}"


def _sentence(difference: Difference, device: str | None) -> str:
    if difference.fact in ("cxx", "cxx_version") and difference.present is None:
        when = "a CPU start" if device == "cpu" else "the start"
        needs = f"and {when} needs one even on a perfect hit"
        if difference.fact == "cxx":
            found = f"no C++ compiler is here (built with {difference.recorded}), {needs}"
            return f"{found}; install {difference.recorded} or set CXX"
        found = f"the C++ compiler does not run here (built with {difference.recorded}), {needs}"
        return f"{found}; mend it or set CXX"
    return f"{difference.sentence()} (cost: {difference.cost})"
