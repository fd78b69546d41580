"""Row 3, key drift: what silently misses in torch is named with both values.

Upstream: pytorch #144859, #149096; vllm #47573; dynamo #10695. What can be told without the server
is told before it starts, by ``explain`` and the hook; what only its code decides is told by the
start report, in the same words. tests/e2e/test_edits.py and test_server_edits.py try many more.
"""

from __future__ import annotations

import json

import pytest

from .bed import Model, make_model

CALLS = [[[8, 64]]]

#: A server whose module has another number where the declared one has its own.
ATTRIBUTE = """
import own
made = own.build
def build():
    module = made()
    module.share = 0.25
    return module
own.build = build
"""

#: Variables, what the server does besides, how it is named and where.
BEFORE = {
    "another thread count": ({"OMP_NUM_THREADS": "1"}, {}, "threads"),
    "CXX spelt in another way": ({"CXX": "c++"}, {}, "cxx"),
}
AFTER = {
    "another matmul precision": (
        {"before": "torch.set_float32_matmul_precision('high')"},
        "[model] setup",
    ),
    "another grad mode": ({"around": "torch.inference_mode(False)"}, "[model] grad"),
}


@pytest.fixture(scope="module")
def scanned(make_place) -> Model:
    place = make_place(OMP_NUM_THREADS="2")
    model = make_model(place, "m")
    done = place.prewarm("scan")
    assert done.returncode == 0, done.stderr
    return model


@pytest.mark.parametrize("case", BEFORE)
def test_what_differs_is_named_before_the_start(scanned, case, fault_row) -> None:
    variables, asked, fact = BEFORE[case]
    env = scanned.place.hooked("m/v1")
    alone = scanned.alone(
        scanned.place.root, CALLS, dynamic=False, variables=env | variables, **asked
    )
    assert alone["fx_miss"] + alone["compilers"] > 0, alone
    explained = scanned.place.prewarm("explain", "m/v1", "--json", variables=variables)
    assert explained.returncode == 1
    (difference,) = json.loads(explained.stdout)["differences"]
    assert difference["fact"] == fact
    hooked = scanned.place.prewarm("hook", "m/v1", "--on-miss", "fail", variables=variables)
    assert hooked.returncode == 4
    fault_row(
        3,
        case,
        alone=f"{alone['fx_miss']} graph missed, {alone['compilers']} compiler runs, no word",
        said=hooked.stderr.removeprefix("prewarm: error: "),
    )


@pytest.mark.parametrize("case", AFTER)
def test_what_only_the_server_decides_is_named_after_the_start(scanned, case, fault_row) -> None:
    asked, fact = AFTER[case]
    env = scanned.place.hooked("m/v1")
    alone = scanned.alone(scanned.place.root, CALLS, dynamic=False, variables=env, **asked)
    assert alone["fx_miss"] + alone["aot_miss"] > 0, alone
    drift = scanned.place.prewarm("drift", str(scanned.place.into("m/v1")), "--json")
    assert drift.returncode == 1
    newest = json.loads(drift.stdout)["starts"][-1]
    facts = [
        difference["fact"] for graph in newest["graphs"] for difference in graph["differences"]
    ]
    assert facts == [fact], newest
    sentence = newest["graphs"][0]["differences"][0]
    fault_row(
        3,
        case,
        alone=f"{alone['fx_miss']} FX and {alone['aot_miss']} AOT misses, no word",
        said=f"{fact}: {sentence['recorded']} was proven, {sentence['present']} was started",
    )


def test_an_attribute_that_nothing_watches_is_said_to_be_the_graph_itself(
    scanned, fault_row
) -> None:
    env = scanned.place.hooked("m/v1")
    alone = scanned.alone(scanned.place.root, CALLS, dynamic=False, variables=env, before=ATTRIBUTE)
    assert alone["fx_miss"] == 1
    drift = scanned.place.prewarm("drift", str(scanned.place.into("m/v1")), "--json")
    (graph,) = json.loads(drift.stdout)["starts"][-1]["graphs"]
    assert graph["differences"] == [] and "attribute" in graph["note"]
    fault_row(3, "an attribute of the module", alone="1 graph missed, no word", said=graph["note"])
