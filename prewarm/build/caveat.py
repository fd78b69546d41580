"""What a clean proof of a bundle is worth: warm, or less because of how the bundle was built. Pure.

A bundle carries its caveat with it, so that a checkpoint that shares it is called what the first
one was: built under a lighter mode, or without one of its shape sets, it is warm for nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prewarm.build.ladder import fallback_reason
from prewarm.build.verdict import Verdict
from prewarm.store.status import Status

#: Reasons that speak of how a bundle was built, and hold for whoever shares it.
_OF_THE_BUILD = ("shape_set_failed", "mode_fallback", "own_graph")


def caveat_of_build(
    *,
    asked_mode: str,
    mode: str,
    left_mode_for: str | None,
    failed_shape_sets: Mapping[str, str],
    misfit: str | None,
) -> Verdict | None:
    """Return what a clean proof of this build means if not simply warm.

    ``left_mode_for`` is why the asked mode was left, ``misfit`` why the bundle that was there did
    not fit.
    """
    if failed_shape_sets:
        name, reason = next(iter(failed_shape_sets.items()))
        return Verdict(Status.PARTIAL, "shape_set_failed", f"shape set {name} failed: {reason}")
    if mode != asked_mode:
        why = left_mode_for or "when the bundle was built"
        return Verdict(Status.PARTIAL, "mode_fallback", fallback_reason(asked_mode, mode, why))
    if misfit is not None:
        return Verdict(
            Status.WARM,
            "own_graph",
            "warm from a build of its own: its graph depends on weight values, so the bundle of "
            f"the same architecture did not fit ({misfit})",
        )
    return None


def caveat_of_record(
    record: Mapping[str, Any], failed_shape_sets: Mapping[str, str]
) -> Verdict | None:
    """Return the caveat of a bundle that is there, from the record of an entry that has it."""
    if record["code"] in _OF_THE_BUILD:
        return Verdict(Status(record["status"]), record["code"], record["reason"])
    return caveat_of_build(
        asked_mode=record["compile"]["asked_mode"],
        mode=record["compile"]["mode"],
        left_mode_for=None,
        failed_shape_sets=failed_shape_sets,
        misfit=None,
    )


def weigh(verdict: Verdict, caveat: Verdict | None) -> Verdict:
    """Return the caveat in place of a clean verdict; a verdict that is not clean stands."""
    return caveat if verdict.status is Status.WARM and caveat is not None else verdict
