"""A verdict needs a zero in every count; anything else has a status, a code and a sentence."""

from __future__ import annotations

import pytest

from prewarm.build.verdict import ZEROS, judge
from prewarm.store.status import Status

CLEAN = {
    "calls": [{"shape_set": "s", "sizes": {"b": 1}, "warm_s": 1.0, "compiled_frames": 1}],
    "outputs": {"state": "agree"},
    "again_failed": None,
    "report": dict.fromkeys((field for field, _, _ in ZEROS), 0),
}


def proof(**changes: object) -> dict:
    report = {**CLEAN["report"], **{k: v for k, v in changes.items() if k in CLEAN["report"]}}
    others = {k: v for k, v in changes.items() if k not in CLEAN["report"]}
    return {**CLEAN, "report": report, **others}


def test_zeros_are_warm() -> None:
    verdict = judge([proof(), proof()])
    assert (verdict.status, verdict.code, verdict.reason) == (Status.WARM, None, None)


def test_what_is_not_here_is_no_obstacle() -> None:
    assert judge([proof(triton_compiled="n/a")]).status is Status.WARM


@pytest.mark.parametrize("field", [field for field, _, _ in ZEROS])
def test_no_single_count_may_differ_from_zero(field: str) -> None:
    verdict = judge([proof(**{field: 2})])
    assert verdict.status in (Status.PARTIAL, Status.UNCACHEABLE)
    assert verdict.code == next(code for name, code, _ in ZEROS if name == field)
    assert "2" in verdict.reason


@pytest.mark.parametrize("field", [field for field, _, _ in ZEROS])
def test_no_single_count_may_be_unknown(field: str) -> None:
    verdict = judge([proof(**{field: None})])
    assert (verdict.status, verdict.code) == (Status.PARTIAL, "cannot_tell")
    assert field in verdict.reason


def test_a_miss_says_that_the_graph_is_another_and_a_bypass_does_not() -> None:
    assert judge([proof(graphs_compiled=1, fx_misses=1)]).other_graph
    assert not judge([proof(graphs_compiled=1, graphs_bypassed=1)]).other_graph
    assert not judge([proof(compilers_started=1)]).other_graph


@pytest.mark.parametrize(("frames", "code"), [(0, "ran_eager"), (None, "cannot_tell")])
def test_every_call_must_run_compiled(frames: int | None, code: str) -> None:
    call = {"shape_set": "s", "sizes": {"b": 7}, "compiled_frames": frames}
    assert judge([proof(calls=[call])]).code == code


def test_the_run_with_another_call_first_counts_too_and_is_named() -> None:
    verdict = judge([proof(), proof(fx_misses=1)])
    assert verdict.status is Status.PARTIAL
    assert "when another call comes first" in verdict.reason


def test_tuning_is_named_before_the_kernels_that_it_compiles() -> None:
    verdict = judge([proof(benchmarked_coordinate_descent=19, triton_compiled=10)])
    assert verdict.code == "retuned"
    assert "pytorch #172819" in verdict.reason


def test_outputs_that_differ_are_never_usable_and_random_ones_are_told_apart() -> None:
    wrong = {"state": "differ", "worst": 0.5, "tolerance": 1e-4, "shape_set": "s", "sizes": {}}
    assert judge([proof(outputs=wrong)]).status is Status.FAILED
    assert judge([proof(outputs={"state": "random"})]).status is Status.WARM
