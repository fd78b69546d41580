"""What goes from ``cache_dir``, and why: the plan, made before anything is removed. Pure.

- What no manifest names goes when its grace period is over, unless somebody reads it or works with
  it.
- Over the limit, bundles that this builder alone names leave its manifest, least recently used
  first, and their files follow after the grace period. One that was used within the grace period is
  in use; so is one that is read or worked with. What is in use stays, even over the limit.
- The same for what was not used for ``unused_s``.
- A bundle that another builder's manifest names is never touched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much and how long bundles are kept; 0 is no limit and no age."""

    grace_s: float
    limit_bytes: int = 0
    unused_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BundleFacts:
    """A bundle file; ``unnamed_s`` is since when no manifest names it."""

    sha256: str
    path: Path
    size_bytes: int
    published_s: float
    unnamed_s: float | None
    others_name_it: bool
    is_read: bool
    marked_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Use:
    """What the builder's state knows of a bundle: who stands on it, its last proof or report."""

    models: tuple[str, ...] = ()
    used_s: float = 0.0
    is_worked_with: bool = False


@dataclass(frozen=True, slots=True)
class Going:
    """A bundle that goes, with the sentence why; ``code`` where it leaves the manifest first."""

    bundle: BundleFacts
    why: str
    models: tuple[str, ...] = ()
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is removed now, what leaves the manifest first, and what waits for its grace period.

    ``stays_bytes`` is the size of the rest; ``problem`` why that is over the limit all the same.
    """

    removed: tuple[Going, ...] = ()
    evicted: tuple[Going, ...] = ()
    waiting: tuple[BundleFacts, ...] = ()
    stays_bytes: int = 0
    problem: str | None = None


def plan(
    bundles: Collection[BundleFacts], uses: Mapping[str, Use], bounds: Bounds, *, now_s: float
) -> Plan:
    """Decide what goes."""
    unnamed = [bundle for bundle in bundles if bundle.unnamed_s is not None]
    is_over = {one.sha256: _is_over(one, uses, bounds, now_s) for one in unnamed}
    removed = [bundle for bundle in unnamed if is_over[bundle.sha256]]
    waiting = [bundle for bundle in unnamed if not is_over[bundle.sha256]]
    named = [bundle for bundle in bundles if bundle.unnamed_s is None]
    stays_bytes = sum(bundle.size_bytes for bundle in named)
    evicted: list[Going] = []
    # Among equals the larger first, so that fewer go.
    free = [bundle for bundle in named if _is_free(bundle, uses, bounds, now_s)]
    for bundle in sorted(free, key=lambda one: (_used_s(one, uses), -one.size_bytes, one.sha256)):
        models, idle_s = uses[bundle.sha256].models, now_s - _used_s(bundle, uses)
        if bounds.unused_s and idle_s >= bounds.unused_s:
            why = f"its bundle was not used for {_days(idle_s)} (unused_s)"
            evicted.append(Going(bundle, why, models, code="unused"))
        elif bounds.limit_bytes and stays_bytes > bounds.limit_bytes:
            why = (
                f"its bundle made room under the limit of {bounds.limit_bytes:,} bytes "
                "(cache_limit_bytes), as the least recently used"
            )
            evicted.append(Going(bundle, why, models, code="evicted"))
        else:
            continue
        stays_bytes -= bundle.size_bytes
    return Plan(
        removed=tuple(Going(bundle, "no manifest names it any more") for bundle in removed),
        evicted=tuple(evicted),
        waiting=tuple(waiting),
        stays_bytes=stays_bytes,
        problem=_problem(stays_bytes, bounds),
    )


def _is_over(bundle: BundleFacts, uses: Mapping[str, Use], bounds: Bounds, now_s: float) -> bool:
    worked_with = uses.get(bundle.sha256, Use()).is_worked_with
    over = bundle.unnamed_s is not None and now_s - bundle.unnamed_s >= bounds.grace_s
    return over and not bundle.is_read and not worked_with


def _is_free(bundle: BundleFacts, uses: Mapping[str, Use], bounds: Bounds, now_s: float) -> bool:
    """Tell whether a bundle that is named may leave the manifest: ours alone, and not in use."""
    use = uses.get(bundle.sha256)
    if use is None or not use.models or use.is_worked_with:
        return False
    if bundle.others_name_it or bundle.is_read:
        return False
    return now_s - _used_s(bundle, uses) >= bounds.grace_s


def _used_s(bundle: BundleFacts, uses: Mapping[str, Use]) -> float:
    known = uses.get(bundle.sha256, Use()).used_s
    return max(bundle.published_s, bundle.marked_s, known)


def _problem(stays_bytes: int, bounds: Bounds) -> str | None:
    if not bounds.limit_bytes or stays_bytes <= bounds.limit_bytes:
        return None
    return (
        f"bundles take {stays_bytes:,} bytes, over the limit of {bounds.limit_bytes:,} "
        f"(cache_limit_bytes), and all are in use: named by another builder, at work, or used "
        f"within {_days(bounds.grace_s)}; raise the limit, or remove models"
    )


def _days(seconds: float) -> str:
    if seconds >= 2 * 86_400:
        return f"{seconds / 86_400:.3g} days"
    return f"{seconds / 3600:.3g} hours"
