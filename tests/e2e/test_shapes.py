"""The calls that servers really make: nested and plain arguments, graph breaks, gradients.

Sizes in any order, marked dimensions, size 1 and the recompile limit are in
tests/faults/test_row_01_order.py and test_row_02_limit.py.
"""

from __future__ import annotations

import pytest

from ..faults.bed import Model, make_model

ARGUMENTS = """\
import torch


class Many(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, x, pair=None, named=None, times=1, how="sum"):
        y = torch.sin(x) * self.scale * times
        if pair is not None:
            y = y + pair[0] * pair[1]["right"]
        if named is not None:
            y = y - named["inner"]["z"]
        return {"out": (y.sum(0) if how == "sum" else y.amax(0),)}


def build():
    return Many()
"""
ARGUMENT_SHAPES = """\
[[shapes]]
name = "nested"
args = [
  { dtype = "float32", shape = ["n", 4] },
  [{ dtype = "float32", shape = ["n", 4] }, { right = { dtype = "float32", shape = [4] } }],
]
sizes = [{ n = 3 }]
[[shapes]]
name = "plain"
inputs.x = { dtype = "float32", shape = ["n", 4] }
inputs.named.inner.z = { dtype = "float32", shape = ["n", 4] }
kwargs = { times = "$n", how = "max" }
sizes = { n = [2] }
"""
BREAKS = """\
import torch


class Broken(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(64))

    def forward(self, x):
        y = torch.sin(x) * self.scale
        torch._dynamo.graph_break()
        return torch.cos(y) + 1


def build():
    return Broken()
"""
FIRST = """\
[[shapes]]
name = "rows"
args = [{ dtype = "float32", shape = ["batch", 64] }]
sizes = { batch = [8] }
"""
CPU = 'device = "cpu"'
FROZEN = CPU + '\ngrad = "no_grad"\nrequires_grad = false'


@pytest.fixture(scope="module")
def models(make_place) -> dict[str, Model]:
    place = make_place()
    made = {
        "arguments": make_model(
            place, "arguments", (FIRST, ARGUMENT_SHAPES), source=ARGUMENTS
        ),
        "breaks": make_model(place, "breaks", source=BREAKS),
        "autocast": make_model(place, "autocast", (CPU, CPU + '\nautocast = "bfloat16"')),
        "grad": make_model(place, "grad", (CPU, CPU + '\ngrad = "grad"\nloss = "sum"')),
        "frozen": make_model(place, "frozen", (CPU, FROZEN)),
    }  # fmt: skip
    done = place.prewarm("scan")
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def test_positional_nested_integer_and_plain_arguments(models) -> None:
    entry = models["arguments"].entry
    assert entry["status"] == "warm"
    parts = {part["name"]: part for part in entry["shape_sets"]}
    assert {name: part["status"] for name, part in parts.items()} == {
        "nested": "warm", "plain": "warm",
    }  # fmt: skip
    assert [call["sizes"] for part in parts.values() for call in part["calls"]] == [
        {"n": 3}, {"n": 2},
    ]  # fmt: skip
    assert entry["proof"]["orders"] == 2  # the other call first, too


def test_a_graph_break_gives_two_graphs_and_both_are_in_the_bundle(models) -> None:
    entry = models["breaks"].entry
    (call,) = entry["shape_sets"][0]["calls"]
    assert (entry["status"], call["graphs"]) == ("warm", 2)
    assert any("graph_break" in reason for reason in call["graph_breaks"])
    assert entry["proof"]["calls"][0]["compiled_frames"] == 2


def test_autocast_around_the_call_is_part_of_the_graph(models, tmp_path) -> None:
    model = models["autocast"]
    assert model.entry["status"] == "warm"
    env = model.place.hooked("autocast/v1")
    around = "torch.autocast('cpu', dtype=torch.bfloat16)"
    warm = model.alone(tmp_path, [[[8, 64]]], dynamic=False, variables=env, around=around)
    assert (warm["fx_hit"], warm["fx_miss"], warm["compilers"]) == (1, 0, 0)


def test_gradients_bring_a_backward_graph(models) -> None:
    entry = models["grad"].entry
    assert entry["status"] == "warm"
    (graph,) = entry["proof"]["graphs"]
    assert (graph["outcome"], graph["grad"]) == ("hit", "grad")
    assert entry["proof"]["outputs"]["state"] == "agree"


def test_frozen_parameters_under_no_grad(models) -> None:
    entry = models["frozen"].entry
    assert entry["status"] == "warm"
    (graph,) = entry["proof"]["graphs"]
    assert graph["grad"] == "no_grad"
    assert graph["parameters"]["requires_grad"] == 0
