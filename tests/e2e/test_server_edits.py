"""Edits of a server that only its own code decides: its start tells what was compiled and why.

One real build, then a start for each edit, in a private directory of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ..faults.bed import save_weights

SERVER = Path(__file__).parent / "edited_server.py"
BLOCKS = """\
import torch


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return self.norm(x + self.down(torch.nn.functional.gelu(self.up(x))))


def build():
    torch.manual_seed(0)
    return Block(64)
"""
DECLARATION = """\
[model]
loader = "python"
factory = "blocks:build"
path = ["src"]
state_dict = "weights.pt"
device = "cpu"
dtype = "float32"

[compile]
dynamic = false
mode = ["default"]

[[shapes]]
name = "answer"
inputs.x = { dtype = "float32", shape = ["batch", 64] }
sizes = [{ batch = 8 }]
"""

#: Each edit with the declared field that its start must name, and what it must say of it.
EDITS = {
    "wrapped": ("[compile] targets", "forward of Wrapped", "forward of Block"),
    "frozen": ("[model] requires_grad", "false", "true"),
    "function": ("[compile] targets", "compiled (edited_server.py)", "forward of Block"),
    "precision": ("[model] setup", "precision high", "precision highest"),
    "grad": ("[model] grad", "grad", "inference"),
    "strided": ("[[shapes]] answer inputs.x.strides", "strides 1, 8", "contiguous"),
    "mode": ("[compile] mode", "reduce-overhead", "default"),
    "dtype": ("[model] dtype", "bfloat16", "float32"),
    "size": ("[[shapes]] answer sizes", "batch = 3", "batch = 8"),
}

Drift = tuple[int, dict[str, Any]]


@pytest.fixture(scope="module")
def place(make_place: Callable[..., Any]) -> Any:
    made = make_place()
    model = made.registry / "block"
    (model / "src").mkdir(parents=True)
    (model / "src" / "blocks.py").write_text(BLOCKS)
    (model / "prewarm.toml").write_text(DECLARATION)
    save_weights(BLOCKS, model / "weights.pt")
    scanned = made.prewarm("scan")
    assert scanned.returncode == 0, scanned.stderr
    return made


@pytest.fixture(scope="module")
def start(place: Any) -> Callable[[str], Drift]:
    def start(edit: str) -> Drift:
        into = place.root / "private" / edit
        path = {"PYTHONPATH": str(place.registry / "block" / "src")}
        variables = place.hooked("block", "--into", str(into), variables=path)
        done = subprocess.run(
            [sys.executable, SERVER, edit],
            env=place.environ() | variables,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        drifted = place.prewarm("drift", str(into), "--json")
        assert drifted.returncode in (0, 1), drifted.stderr
        return drifted.returncode, json.loads(drifted.stdout)

    return start


@pytest.fixture(scope="module")
def drifts(start: Callable[[str], Drift]) -> dict[str, Drift]:
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(EDITS, pool.map(start, EDITS), strict=True))


def test_the_server_as_declared_compiles_nothing(start: Callable[[str], Drift]) -> None:
    code, drift = start("unedited")
    assert (code, drift["compiled"], drift["added"]["files"]) == (0, False, 0)
    (told,) = drift["starts"]
    assert (told["graphs_found"], told["graphs"], told["counts"]) == (1, [], {})
    assert told["cannot_tell"] == []
    assert told["first_run_s"] > 0


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_named_by_the_field_to_look_at(edit: str, drifts: dict[str, Drift]) -> None:
    code, drift = drifts[edit]
    assert (code, drift["compiled"]) == (1, True)
    (told,) = drift["starts"]
    (graph,) = told["graphs"]
    # torch finds the kernels where only AOT autograd's key is another one.
    traced = ("wrapped", "frozen", "function")
    assert graph["outcome"] == ("traced" if edit in traced else "miss")
    assert graph["seconds"] > 0
    fields = {one["fact"]: one for one in graph["differences"]}
    field, here, there = EDITS[edit]
    if edit == "dtype":  # the input is declared with a dtype of its own
        assert fields.pop("[[shapes]] answer inputs.x.dtype")["present"] == "bfloat16"
    assert list(fields) == [field]
    assert here in fields[field]["present"]
    assert there in fields[field]["recorded"]
    assert drift["added"]["files"] >= 1


def test_a_size_that_nobody_declared_is_told_with_the_line_to_write(
    drifts: dict[str, Drift],
) -> None:
    (graph,) = drifts["size"][1]["starts"][0]["graphs"]
    assert graph["advice"] == ['in [[shapes]] "answer" add { batch = 3 } to sizes']
