"""Row 1, order of shapes: what a proof covers is said, and each covered order was really made.

Upstream: sglang #2507, vllm #27178.
"""

from __future__ import annotations

import pytest

from .bed import Model, make_model

#: Replacements in the declaration, the calls of a deployment in another order, what is covered.
AUTO = ("dynamic = false", 'dynamic = "auto"')
TRUE = ("dynamic = false", "dynamic = true")
SIZES = ("sizes = { batch = [8] }", "sizes = { batch = [8, 16, 32] }")
ONE = ("sizes = { batch = [8] }", "sizes = { batch = [1, 8] }")
MARKED = ("sizes = { batch = [8] }", 'dynamic_dims = ["batch"]\nsizes = { batch = [1, 8, 16] }')
CASES = {
    'dynamic = "auto", 32 first': ((AUTO, SIZES), None, [32, 8, 16], "declared order"),
    "dynamic = true, 1 beside 8, 8 first": ((TRUE, ONE), True, [8, 1], "any order"),
    "a marked dimension, 16 first": ((MARKED,), False, [16, 1, 8], "any order"),
}


@pytest.fixture(scope="module")
def scanned(make_place) -> dict[str, Model]:
    place = make_place()
    models = {
        case: make_model(place, f"m{number}", *changes)
        for number, (case, (changes, *_)) in enumerate(CASES.items())
    }
    done = place.prewarm("scan")
    assert done.returncode == 0, done.stdout + done.stderr
    return models


@pytest.mark.parametrize("case", CASES)
def test_what_a_proof_covers_is_said_and_true(scanned, case, fault_row, tmp_path) -> None:
    model = scanned[case]
    _, dynamic, other_order, covers = CASES[case]
    entry = model.entry
    assert (entry["status"], entry["covers"]) == ("warm", covers)
    env = model.place.hooked(f"{model.name}/v1")
    calls = [[[batch, 64]] for batch in other_order]
    told = model.alone(tmp_path, calls, dynamic=dynamic, variables=env, mark="marked" in case)
    missed = told["fx_miss"] + told["compilers"]
    assert (missed > 0) == (covers == "declared order"), told
    fault_row(
        1,
        case,
        alone=f"{told['fx_miss']} graphs missed, {told['compilers']} compiler runs",
        said=f"warm, covers {covers}",
    )
