"""What ``prewarm drift`` prints, and its exit codes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prewarm.deploy.listing import Listing, write_listing

Result = tuple[int, str, str]
TREE = "a" * 32
GRAPH: dict[str, Any] = {
    "frame": {"name": "forward", "of": "Block", "file": "blocks.py", "line": 3},
    "grad": "inference",
    "inputs": [{"name": "x", "dtype": "float32", "shape": [8, 64]}],
}
SHAPES = [
    {
        "name": "answer",
        "inputs": {"x": {"dtype": "float32", "shape": ["batch", 64]}},
        "sizes": [{"batch": 8}],
    }
]


@pytest.fixture
def into(tmp_path: Path) -> Path:
    (tmp_path / TREE / "inductor").mkdir(parents=True)
    write_listing(tmp_path / TREE, Listing(("b",), "t", {}))
    proof = {"graphs": [GRAPH], "declared": {"shapes": SHAPES}}
    env_json = {
        "format": 1,
        "caches": {
            "TORCHINDUCTOR_CACHE_DIR": f"{TREE}/inductor",
            "TRITON_CACHE_DIR": f"{TREE}/triton",
        },
        "variables": {},
        "entries": [{"model": "block/v1", "proof": proof}],
        "environments": {"e": {"device": "cpu"}},
    }
    (tmp_path / "env.json").write_text(json.dumps(env_json))
    return tmp_path


def start(into: Path, *events: dict[str, Any], **graph: Any) -> None:
    at_ns = time.time_ns()
    directory = into / "reports" / f"{at_ns}-7"
    directory.mkdir(parents=True)
    told = [
        {"event": "start"},
        {"event": "graph", "graph": 1, **GRAPH, **graph},
        *events,
        {"event": "graph_done", "graph": 1, "seconds": 8.54},
        {"event": "frame", "seconds": 9.0},
        {"event": "ran", "device_index": None},
        {"event": "files", "changed": []},
    ]
    lines = [json.dumps({"pid": 7, "at_s": at_ns / 1e9, **event}) for event in told]
    (directory / "7.jsonl").write_text("\n".join(lines))


HIT = {"event": "aot_lookup", "state": "hit", "graph": 1}
MISS = {"event": "aot_lookup", "state": "miss", "graph": 1}


def test_no_drift_ends_with_0_and_says_what_cannot_be_told(
    into: Path, prewarm: Callable[..., Result]
) -> None:
    code, out, err = prewarm("drift", into)
    assert (code, err) == (0, "")
    first, added, unknown = out.splitlines()
    assert first.startswith("block/v1: filled ")
    assert added == "added since: nothing"
    assert unknown.startswith("cannot tell what a start did: no start report")


def test_a_warm_start_is_one_line(into: Path, prewarm: Callable[..., Result]) -> None:
    start(into, HIT)
    code, out, _ = prewarm("drift", into)
    assert code == 0
    line = out.splitlines()[-1]
    assert "(pid 7), first graph run after 9.0 s: 1 graphs found, none compiled" in line


def test_drift_ends_with_1_and_tells_each_graph_with_its_field(
    into: Path, prewarm: Callable[..., Result]
) -> None:
    start(into, MISS, inputs=[{"name": "x", "dtype": "float32", "shape": [3, 64]}])
    (into / TREE / "inductor" / "kernel.so").write_bytes(b"12345")
    code, out, err = prewarm("drift", into)
    assert code == 1
    assert "added since: 1 files, 5 B (1 C++ kernels)" in out
    assert out.splitlines()[3:] == [
        "  forward of Block for x = 3 × 64 float32: miss, 8.5 s",
        "    [[shapes]] answer sizes: batch = 3 in this start, batch = 8 in the proof",
        '    -> in [[shapes]] "answer" add { batch = 3 } to sizes',
    ]
    assert err == "prewarm: 1 graphs were compiled by 1 of 1 starts\n"


def test_where_no_field_differs_that_is_said(into: Path, prewarm: Callable[..., Result]) -> None:
    start(into, MISS)
    code, out, _ = prewarm("drift", into)
    assert code == 1
    assert "nothing that is watched differs from the proof" in out


def test_json_has_the_same_with_stable_fields(into: Path, prewarm: Callable[..., Result]) -> None:
    start(into, MISS, grad="no_grad")
    code, out, err = prewarm("drift", into, "--json")
    assert (code, err) == (1, "")
    told = json.loads(out)
    assert set(told) == {
        "directory", "models", "tree", "filled_at", "compiled", "added", "starts", "earlier_starts",
    }  # fmt: skip
    (only,) = told["starts"]
    assert only["graphs"][0]["differences"][0]["fact"] == "[model] grad"


def test_files_alone_are_told_as_left_by_nobody_known(
    into: Path, prewarm: Callable[..., Result]
) -> None:
    (into / TREE / "inductor" / "kernel.so").write_bytes(b"12345")
    code, _, err = prewarm("drift", into)
    assert code == 1
    assert "was added to by a start that left no report" in err


def test_a_directory_that_no_hook_filled_is_told_in_one_line(
    tmp_path: Path, prewarm: Callable[..., Result]
) -> None:
    code, out, err = prewarm("drift", tmp_path / "absent")
    assert (code, out) == (1, "")
    assert err.startswith("prewarm: error: ")
    assert "no hook has filled this directory" in err
    code, out, _ = prewarm("drift", tmp_path / "absent", "--json")
    assert code == 1
    assert json.loads(out)["error"]["code"] == "not_filled"
