"""Row 14, stale code: what torch's key does not see, and would answer from the old graph.

Upstream: pytorch #187319 (a custom operator changed but not its name).
"""

from __future__ import annotations

import pytest

from .bed import BLOCK, Model, make_model

OPERATOR = """

LIBRARY = torch.library.Library("own_operators", "DEF")
LIBRARY.define("scale(Tensor x) -> Tensor")
LIBRARY.impl("scale", lambda x: x * 2.0, "CompositeImplicitAutograd")


class Scaled(Block):
    def forward(self, x):
        return torch.ops.own_operators.scale(super().forward(x))


def build():
    torch.manual_seed(0)
    return Scaled()
"""
DECOMPOSITION = """
from torch._inductor.decomposition import decompositions


@torch.library.custom_op("own_operators::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2.0


twice.register_fake(torch.empty_like)
decompositions[torch.ops.own_operators.twice.default] = lambda x: x * 2.0


class Scaled(Block):
    def forward(self, x):
        return torch.ops.own_operators.twice(super().forward(x))


def build():
    torch.manual_seed(0)
    return Scaled()
"""
IMPORTED = """
import operators


class Scaled(Block):
    def forward(self, x):
        return torch.ops.own_operators.scale(super().forward(x))


def build():
    torch.manual_seed(0)
    return Scaled()
"""
HELPER = "import torch\n" + OPERATOR.split("\n\n\nclass")[0]

#: What is added to the model's source, which file is edited, and what holds besides.
CASES = {
    "a custom operator's body": (OPERATOR, "own.py"),
    "an operator's decomposition": (DECOMPOSITION, "own.py"),
    "an operator in a module that the model imports": (IMPORTED, "operators.py"),
}
CALLS = [[[8, 64]]]


@pytest.fixture(scope="module")
def scanned(make_place) -> dict[str, Model]:
    """All cases in one registry, scanned once. The operators are registered in children only."""
    place = make_place()
    models = {
        case: make_model(
            place, f"m{number}", added=added, more={"operators.py": HELPER}, weights_of=BLOCK
        )
        for number, (case, (added, _)) in enumerate(CASES.items())
    }
    done = place.prewarm("scan")
    assert done.returncode == 0, done.stderr
    return models


@pytest.mark.parametrize("case", CASES)
def test_changed_code_is_never_answered_by_an_old_graph(scanned, fault_row, tmp_path, case) -> None:
    _, edited = CASES[case]
    model = scanned[case]
    place, name = model.place, f"{model.name}/v1"
    env = place.hooked(name)
    source = model.source.with_name(edited)
    source.write_text(source.read_text().replace("* 2.0", "* 3.0"))
    # Torch alone on the bundle's files: a perfect hit, and the old answer.
    alone = model.alone(tmp_path, CALLS, dynamic=False, variables=env)
    assert (alone["fx_hit"], alone["compilers"], alone["wrong"]) == (1, 0, 1), alone
    hooked = place.prewarm("hook", name, "--into", str(place.into(name)), "--on-miss", "fail")
    assert hooked.returncode == 3, hooked.stderr
    assert edited in hooked.stderr and "pytorch" not in hooked.stderr
    cold = place.prewarm("hook", name, "--into", str(tmp_path / "other"), "--json")
    assert cold.returncode == 0 and '"variables": {}' in cold.stdout
    fault_row(
        14,
        case,
        alone=f"{alone['fx_hit']} hit, 0 misses, and the old code's answer: wrong",
        said=hooked.stderr.removeprefix("prewarm: error: ").replace(model.name, "m"),
    )
    if case == "a custom operator's body":  # once: the next scan builds it as it is now
        again = place.prewarm("scan")
        assert again.returncode == 0, again.stderr
        fresh = model.alone(tmp_path, CALLS, dynamic=False, variables=place.hooked(name))
        assert (fresh["fx_hit"], fresh["compilers"], fresh["wrong"]) == (1, 0, 0)
