"""Row 6, uncacheable graphs: never warm, the reason names the cause, and no endless rebuild.

Upstream: pytorch #191106 (autocast inside forward), #130772 (a raw callable as pass).
"""

from __future__ import annotations

import pytest

from .bed import Model, make_model

AUTOCAST = """

class Autocast(Block):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(x)


def build():
    torch.manual_seed(0)
    return Autocast()
"""
PASS = """

def keep(graph):
    return None


def with_pass(model):
    import torch._inductor.config

    torch._inductor.config.post_grad_custom_pre_pass = keep
    return model
"""
COND = """

class Branch(Block):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda z: z + 1, lambda z: z - 1, (super().forward(x),))


def build():
    torch.manual_seed(0)
    return Branch()
"""
SETUP = ('path = ["src"]', 'path = ["src"]\nsetup = "own:with_pass"')
PASS_ALONE = "import torch._inductor.config as c; c.post_grad_custom_pre_pass = lambda graph: None"

#: Model, declaration's change, added source, the same for torch alone, status, words of the reason.
CASES = {
    "autocast inside forward": ((), AUTOCAST, "", "partial", "aot_bypass", "autocast"),
    "a raw callable as pass": ((SETUP,), PASS, PASS_ALONE, "uncacheable", "fx_bypass", "pass"),
    "control flow (torch.cond)": ((), COND, "", "uncacheable", "fx_bypass", ""),
}


@pytest.fixture(scope="module")
def scanned(make_place) -> dict[str, Model]:
    """All cases in one registry, scanned once."""
    place = make_place()
    models = {
        case: make_model(place, f"m{number}", *changes, added=added)
        for number, (case, (changes, added, *_)) in enumerate(CASES.items())
    }
    done = place.prewarm("scan")
    assert done.returncode == 1, done.stdout + done.stderr
    return models


@pytest.mark.parametrize("case", CASES)
def test_a_graph_that_cannot_be_cached_is_never_warm(scanned, case, fault_row, tmp_path) -> None:
    model = scanned[case]
    before, status, code, word = CASES[case][2:]
    entry = model.entry
    assert (entry["status"], entry["code"]) == (status, code)
    assert word in entry["reason"].lower()
    first, again = (model.alone(tmp_path, [[[8, 64]]], dynamic=False, before=before) for _ in "ab")
    bypassed = again["fx_bypass"] + again["aot_bypass"]
    assert bypassed > 0 and bypassed == first["fx_bypass"] + first["aot_bypass"]
    fault_row(
        6,
        case,
        alone=f"second start: {again['fx_bypass']} FX and {again['aot_bypass']} AOT bypasses, "
        f"{again['compilers']} compiler runs, no error",
        said=f"{status}, {code}: {entry['reason']}",
    )


def test_it_is_not_built_again_at_each_scan(scanned) -> None:
    place = next(iter(scanned.values())).place
    before = place.compiles()
    for _ in range(2):
        assert place.prewarm("scan").returncode == 1
    assert place.compiles() == before
