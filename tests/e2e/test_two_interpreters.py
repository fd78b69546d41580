"""Two interpreters side by side: entries of both in one place, each hook takes its own.

Another Python is scanned by the same builder with another ``interpreter`` in the declaration;
another torch has a builder of its own, which shares the cache directory. Before each is published,
the hook that is asked with it names the version that differs.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from ..faults.bed import Model, make_model
from ..interpreters import another_python, another_torch, version_of
from ..place import Place

OTHER_TORCH = "2.99.0+other"

NET = """\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 16)

    def forward(self, x):
        return torch.relu(self.layer(x))


def build():
    torch.manual_seed(0)
    return Net()
"""


@pytest.fixture(scope="module")
def model(make_place: Callable[..., Place]) -> Model:
    """One model, published for the interpreter that runs the tests."""
    made = make_model(make_place(), "net", ('["batch", 64]', '["batch", 16]'), source=NET)
    scan = made.place.prewarm("scan")
    assert scan.returncode == 0, scan.stdout + scan.stderr
    return made


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another Python, which must be of another version."""
    found = another_python(tmp_path_factory.mktemp("python") / "env")
    if version_of(found) == platform.python_version():
        pytest.skip(f"the system's Python is the one in use, {platform.python_version()}")
    return found


@pytest.fixture(scope="module")
def torch_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our Python with another torch."""
    return another_torch(tmp_path_factory.mktemp("torch") / "env", OTHER_TORCH)


def hooked(model: Model, python: Path | str, into: Path) -> dict[str, Any]:
    """Run the hook for an interpreter and return what it tells."""
    told = model.place.prewarm(
        *("hook", "net/v1", "--into", str(into), "--json", "--on-miss", "fail"),
        *("--interpreter", str(python)),
    )
    assert told.returncode == 0, told.stderr
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def bundle_started_from(model: Model, python: Path | str, into: Path) -> str:
    """Run the hook and a server with an interpreter, which must be warm; return the bundle."""
    told = hooked(model, python, into)
    alone = model.alone(
        into.with_name("not-there"), [[[8, 16]]], variables=told["variables"],
        python=(str(python),), dynamic=False,
    )  # fmt: skip
    assert alone == {
        "fx_hit": 1, "fx_miss": 0, "fx_bypass": 0, "aot_hit": 1, "aot_miss": 0, "aot_bypass": 0,
        "graphs": 1, "compilers": 0, "failed": None, "wrong": 0,
    }  # fmt: skip
    bundle: str = told["models"][0]["bundle"]
    return bundle


def declare(model: Model, python: Path) -> None:
    """State the interpreter in the declaration."""
    interpreter = f'interpreter = ["{python}"]\n[compile]'
    model.declare(('["batch", 64]', '["batch", 16]'), ("[compile]", interpreter))


def refused(model: Model, python: Path, fact: str, here: str, recorded: str) -> None:
    """See that hook and ``explain`` name just this fact, with both values."""
    words = ("net/v1", "--interpreter", str(python))
    hook = model.place.prewarm("hook", *words, "--on-miss", "fail")
    assert hook.returncode == 4, hook.stderr
    assert re.fullmatch(
        f"prewarm: error: net/v1: {fact} is {re.escape(here)} here, the bundle was built with "
        rf"{re.escape(recorded)} \(cost: [^;]*\); also different: build_paths\n",
        hook.stderr,
    ), hook.stderr
    explain = model.place.prewarm("explain", *words, "--json")
    assert explain.returncode == 1
    told = json.loads(explain.stdout)
    [difference] = told["differences"]
    assert [difference[key] for key in ("fact", "present", "recorded")] == [fact, here, recorded]
    assert [implied["fact"] for implied in told["implied"]] == ["build_paths"]


def test_another_python_is_named_by_both_versions(model: Model, python: Path) -> None:
    ours, theirs = platform.python_version(), version_of(python)

    refused(model, python, "python", f"cpython {theirs}", f"cpython {ours}")


def test_another_torch_is_named_by_both_versions(model: Model, torch_python: Path) -> None:
    refused(model, torch_python, "torch", OTHER_TORCH, version("torch"))


def test_one_builder_publishes_for_both_and_each_hook_takes_its_own(
    model: Model, python: Path, tmp_path: Path
) -> None:
    declare(model, python)
    scan = model.place.prewarm("scan")

    assert scan.returncode == 0, scan.stdout + scan.stderr
    ours = bundle_started_from(model, sys.executable, tmp_path / "ours")
    theirs = bundle_started_from(model, python, tmp_path / "theirs")
    assert ours != theirs
    versions = (platform.python_version(), version_of(python))
    told = model.place.prewarm("status", "--json")
    assert sorted(
        (entry["bundle"]["sha256"], entry["status"], entry["differs_in"]["python"])
        for entry in json.loads(told.stdout)["entries"]
    ) == sorted(
        (bundle, "warm", f"cpython {one}")
        for bundle, one in zip((ours, theirs), versions, strict=True)
    )
    shown = model.place.prewarm("status").stdout
    assert all(f"python {one}" in shown for one in versions)


def test_two_builders_publish_side_by_side_and_each_hook_takes_its_own(
    model: Model, torch_python: Path, tmp_path: Path
) -> None:
    ours = hooked(model, sys.executable, tmp_path / "ours")["models"][0]
    second = {"PREWARM_BUILDER": "second", "PREWARM_STATE_DIR": str(tmp_path / "state")}

    declare(model, torch_python)
    scan = model.place.prewarm("scan", variables=second)

    assert scan.returncode == 0, scan.stdout + scan.stderr
    manifests = (model.place.cache_dir / "manifests").iterdir()
    assert {path.name for path in manifests} == {"test.json", "second.json"}
    assert bundle_started_from(model, torch_python, tmp_path / "theirs") != ours["bundle"]
    assert hooked(model, sys.executable, tmp_path / "ours")["models"][0] == ours
