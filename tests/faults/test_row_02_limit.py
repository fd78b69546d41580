"""Row 2, the recompile limit: more static graphs than torch keeps, carried to the deployment.

Upstream: TensorRT-LLM #6142 (beyond 8 graphs the rest runs in eager mode, with one log line).
"""

from __future__ import annotations

import pytest

from .bed import make_model
from .children import Children, verdict_of

#: Quick to compile: what is tried is their number.
SMALL = """\
import torch


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, x, times=1):
        return torch.sin(x) * self.scale * times


def build():
    return Small()
"""
NARROW = ('shape = ["batch", 64]', 'shape = ["batch", 4]')


def _sizes(number: int) -> tuple[str, str]:
    batches = ", ".join(str(batch) for batch in range(2, 2 + number))
    return ("sizes = { batch = [8] }", f"sizes = {{ batch = [{batches}] }}")


FULL = ("dynamic = false", "dynamic = false\nfullgraph = true")
TIMES = (
    "sizes = { batch = [8] }",
    'kwargs = { times = "$times" }\n'
    "sizes = [" + ", ".join(f"{{ batch = 2, times = {n} }}" for n in range(1, 10)) + "]",
)
CALLS = [[[batch, 4]] for batch in range(2, 12)]


def test_ten_static_sizes_are_warm_with_the_limit_that_the_shim_carries(
    make_place, fault_row, tmp_path
) -> None:
    place = make_place()
    model = make_model(place, "m", NARROW, _sizes(10), source=SMALL)
    done = place.prewarm("scan")
    assert done.returncode == 0, done.stdout + done.stderr
    entry = model.entry
    assert (entry["status"], entry["code"], entry["requires"]) == ("warm", "needs_shim", ["shim"])
    assert entry["compile"]["recompile_limit"] == 10
    assert entry["covers"] == "any order"
    alone = model.alone(tmp_path, CALLS, dynamic=False)
    assert alone["graphs"] == 8 and alone["failed"] is None  # two sizes run eagerly, unsaid
    env = place.hooked("m/v1")
    warm = model.alone(tmp_path, CALLS, dynamic=False, variables=env)
    assert (warm["graphs"], warm["fx_miss"], warm["compilers"]) == (10, 0, 0)
    fault_row(
        2,
        "ten static sizes",
        alone=f"{alone['graphs']} of 10 graphs, the other sizes run in eager mode, no error",
        said=f"{entry['status']}, {entry['code']}: {entry['reason']}",
    )


@pytest.mark.parametrize(
    ("case", "changes", "alone"),
    [
        (
            "nine sizes, fullgraph = true",
            (NARROW, _sizes(9), FULL),
            {"calls": CALLS[:9], "fullgraph": True},
        ),
        (
            "nine values of an integer argument",
            (NARROW, TIMES),
            {"calls": [[[2, 4]]] * 9, "times": list(range(1, 10))},
        ),
    ],
)
def test_whatever_makes_the_graphs_many(
    make_place, fault_row, tmp_path, case, changes, alone
) -> None:
    model = make_model(make_place(), "m", *changes, source=SMALL)
    children = Children(model, tmp_path)
    children.compile(recompile_limit=9)
    # Torch alone, on the build's own cache: every graph that it may keep is a hit.
    seen = model.alone(children.cache / "inductor", dynamic=False, **alone)
    assert seen["graphs"] == 8
    assert bool(seen["failed"]) == ("fullgraph" in case)
    proof = children.prove(recompile_limit=9, shim=True)
    verdict = verdict_of(proof)
    assert verdict.status == "warm" and "recompile_limit" in proof["mends"]
    ends = f"call 9 raises {seen['failed']}" if seen["failed"] else "call 9 runs in eager mode"
    fault_row(2, case, alone=f"8 of 9 graphs, {ends}", said="warm with the shim, 9 graphs, limit 9")
