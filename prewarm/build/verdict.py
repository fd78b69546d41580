"""The verdict on a proof: from a start report to a status, a code and one sentence. Pure.

``warm`` needs a zero in every count. ``None`` ("cannot tell") is not zero; ``"n/a"`` (does not
exist here) is fine. A proof that is not warm leads to ``partial`` (usable, something is repeated at
each start), to ``uncacheable`` (the graph bypasses the cache), or to ``failed`` (outputs differ:
never usable).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prewarm.store.status import Status

#: Counts that must be zero, in the order in which they are told: field, code, what happened.
ZEROS: tuple[tuple[str, str, str], ...] = (
    ("graphs_bypassed", "fx_bypass", "{n} graph(s) bypass the FX cache"),
    ("aot_bypassed", "aot_bypass", "{n} graph(s) bypass the AOT cache"),
    ("graphs_compiled", "graph_compiled", "{n} graph(s) were compiled again"),
    ("fx_misses", "fx_miss", "{n} graph(s) missed the FX cache"),
    ("aot_misses", "aot_miss", "{n} graph(s) missed the AOT cache"),
    (
        "limits_hit",
        "recompile_limit",
        "torch's recompile limit was hit {n} time(s), the rest ran in eager mode",
    ),
    ("cpp_compiled", "cpp_compiled", "{n} C++ kernel(s) were compiled again"),
    (
        "benchmarked_autotuning",
        "autotuned",
        "{n} configuration(s) were benchmarked again by autotuning",
    ),
    (
        "benchmarked_coordinate_descent",
        "retuned",
        "{n} configuration(s) were benchmarked again by coordinate descent (pytorch #172819)",
    ),
    ("triton_compiled", "triton_compiled", "{n} Triton kernel(s) were compiled again"),
    ("compilers_started", "compiler_started", "{n} compiler(s) were started"),
    ("files_changed", "files_changed", "{n} file(s) were written to the cache directories"),
    ("recompiles", "recompiled", "{n} frame(s) were traced again for a call already made"),
)

#: Codes of what the shim carries to a deployment where a variable cannot: torch's recompile limit,
#: and tuning that a release forgets (``torchside/mends.py``).
SHIM_CARRIES = frozenset({"recompile_limit", "autotuned", "retuned", "triton_compiled"})

#: The mends that carry it; the shim's others only save time and make no start clean.
CARRYING_MENDS = frozenset(
    {"recompile_limit", "retuning", "triton_groups", "ptxas", "precompiled_headers"}
)

#: Counts that say "this checkpoint's graph is not the one in the bundle".
_OTHER_GRAPH = ("graphs_compiled", "fx_misses", "aot_misses")
_BYPASSES = ("graphs_bypassed", "aot_bypassed")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a proof says; ``other_graph`` is whether the bundle simply is not this checkpoint's."""

    status: Status
    code: str | None
    reason: str | None
    other_graph: bool = False


def judge(proofs: Sequence[Mapping[str, Any]]) -> Verdict:
    """Judge the full run in the declared order (first) and the runs with another call first."""
    for number, proof in enumerate(proofs):
        verdict = _judge_one(proof, " when another call comes first" if number else "")
        if verdict.status is not Status.WARM:
            return verdict
    return Verdict(Status.WARM, None, None)


def warm_with_shim(plain: str | None) -> Verdict:
    """Return the verdict on a start that is clean with the shim; ``plain`` says what is not."""
    why = (plain or "a plain start was not clean").removeprefix("at a start from the bundle ")
    return Verdict(
        Status.WARM, "needs_shim", f"warm with the shim alone; without it, at a plain start, {why}"
    )


def _judge_one(proof: Mapping[str, Any], when: str) -> Verdict:
    outputs = proof.get("outputs") or {}
    if outputs.get("state") == "differ":
        return Verdict(
            Status.FAILED,
            "outputs_differ",
            f"the compiled outputs differ from eager's by {_number(outputs.get('worst'))} "
            f"(allowed {_number(outputs.get('tolerance'))}) in shape set "
            f"{outputs.get('shape_set')} {_sizes(outputs.get('sizes'))}",
        )
    report = proof["report"]
    found = [(field, code, text) for field, code, text in ZEROS if _counted(report.get(field))]
    if found:
        return _not_zero(report, found, when)
    eager = [call for call in proof["calls"] if call.get("compiled_frames") == 0]
    if eager:
        return Verdict(
            Status.PARTIAL,
            "ran_eager",
            f"{len(eager)} declared call(s) ran in no compiled frame{when}, first "
            f"{eager[0].get('shape_set')} {_sizes(eager[0].get('sizes'))}: torch compiled nothing",
        )
    unseen = [field for field, _, _ in ZEROS if report.get(field) is None]
    unseen += ["compiled_frames"] * any(
        call.get("compiled_frames") is None for call in proof["calls"]
    )
    if unseen:
        return Verdict(
            Status.PARTIAL,
            "cannot_tell",
            f"{', '.join(unseen)} could not be watched in this torch "
            f"({', '.join(report.get('not_watched') or ['no events'])}), so nothing is proven",
        )
    if proof.get("again_failed"):
        return Verdict(
            Status.PARTIAL,
            "recompiled",
            f"a call made once more wanted to recompile: {proof['again_failed']}",
        )
    return Verdict(Status.WARM, None, None)


def _not_zero(
    report: Mapping[str, Any], found: Sequence[tuple[str, str, str]], when: str
) -> Verdict:
    field, code, text = found[0]
    bypassed = field in _BYPASSES
    why = f": {report['bypass_reasons'][0]}" if bypassed and report.get("bypass_reasons") else ""
    reason = text.format(n=report[field]) + why + when
    return Verdict(
        Status.UNCACHEABLE if field == "graphs_bypassed" else Status.PARTIAL,
        code,
        f"at a start from the bundle {reason}",
        other_graph=not bypassed and any(name in _OTHER_GRAPH for name, _, _ in found),
    )


def _counted(value: object) -> bool:
    return isinstance(value, int) and value > 0


def _number(value: object) -> str:
    return f"{value:.2g}" if isinstance(value, int | float) else "an unknown amount"


def _sizes(sizes: object) -> str:
    if not isinstance(sizes, Mapping) or not sizes:
        return "(no sizes)"
    return "(" + ", ".join(f"{name}={size}" for name, size in sizes.items()) + ")"
