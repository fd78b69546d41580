"""Controls: what differs between a build and a deployment and must stay warm.

One real scan of ``Block(64)``; then, for each change, a server that knows nothing of prewarm starts
with the hook's variables: torch's own counters show no miss, no compiler runs, and the start report
is one of zeros.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ..faults.bed import Model, make_model, without_prewarm
from ..interpreters import NOBODY, another_python, as_nobody, require_nobody
from ..place import TIMEOUT_S, Place

ALONE = Path(__file__).parents[1] / "faults" / "alone.py"
PACKAGE = Path(__file__).parents[2] / "prewarm"

BLOCK = """\
import torch


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x + self.down(torch.nn.functional.gelu(self.up(x))))


def build():
    torch.manual_seed(0)
    return Block(64)
"""


@pytest.fixture(scope="module")
def model(make_place: Callable[..., Place]) -> Model:
    made = make_model(make_place(), "block", source=BLOCK)
    scan = made.place.prewarm("scan")
    assert scan.returncode == 0, scan.stdout + scan.stderr
    return made


def asked(model: Model, **changes: Any) -> list[str]:
    """Return the words of a server's start: the model's first version, unless changed."""
    request = {
        "path": str(model.source.parent),
        "factory": "own:build",
        "weights": str(model.directory / "v1" / "weights.pt"),
        "calls": [[[8, 64]]],
        "mode": "default",
        "dynamic": False,
    }
    return [str(ALONE), json.dumps(request | changes)]


def started(
    model: Model,
    variables: Mapping[str, str],
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    **changes: Any,
) -> None:
    """Start the server with the hook's variables and see that it was warm, by torch's counters."""
    done = subprocess.run(
        [sys.executable, *asked(model, **changes)],
        env=without_prewarm() | dict(environ or {}) | dict(variables),
        cwd=cwd or model.place.root,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    was_warm(done, Path(variables["PREWARM_DIR"]))


def was_warm(done: subprocess.CompletedProcess[str], directory: Path) -> None:
    """See that a start missed nothing, by torch's counters and by its one report of zeros."""
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.strip().splitlines()[-1])
    drift = subprocess.run(
        [sys.executable, "-m", "prewarm.cli", "drift", str(directory), "--json"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    report = json.loads(drift.stdout)
    assert told == {
        "fx_hit": 1, "fx_miss": 0, "fx_bypass": 0, "aot_hit": 1, "aot_miss": 0, "aot_bypass": 0,
        "graphs": 1, "compilers": 0, "failed": None, "wrong": 0,
    }, (told, report)  # fmt: skip
    assert (drift.returncode, report["compiled"], report["added"]["files"]) == (0, False, 0), report
    [start] = report["starts"]
    assert (start["counts"], start["cannot_tell"], start["graphs_found"]) == ({}, [], 1), report


def hooked(model: Model, into: Path, *words: str, version: str = "v1") -> dict[str, str]:
    """Run the hook for a private directory of the test's own and return its variables."""
    place = model.place
    told = place.prewarm(
        "hook", f"block/{version}", "--into", str(into), "--json", "--on-miss", "fail", *words
    )
    assert told.returncode == 0, told.stderr
    variables: dict[str, str] = json.loads(told.stdout)["variables"]
    return variables


def test_other_weights_are_proven_without_a_compile_and_start_warm(
    model: Model, tmp_path: Path
) -> None:
    weights = model.version("v2", scale=3.0) / "weights.pt"

    scan = model.place.prewarm("scan")

    assert scan.returncode == 0, scan.stdout + scan.stderr
    first, second = (model.place.status()[f"block/{version}"] for version in ("v1", "v2"))
    assert (second["status"], second["code"]) == ("warm", None)
    assert second["bundle"]["sha256"] == first["bundle"]["sha256"]
    assert model.place.compiles() == 1
    variables = hooked(model, tmp_path / "warm", version="v2")
    started(model, variables, weights=str(weights))


def test_another_hash_seed_stays_warm(model: Model, tmp_path: Path) -> None:
    variables = hooked(model, tmp_path / "warm")

    started(model, variables, environ={"PYTHONHASHSEED": "4711"})


def test_source_at_another_path_stays_warm(model: Model, tmp_path: Path) -> None:
    shutil.copytree(model.source.parent, tmp_path / "app" / "code")

    started(model, hooked(model, tmp_path / "warm"), path=str(tmp_path / "app" / "code"))


def test_a_private_directory_at_another_path_stays_warm_for_a_pod(
    model: Model, tmp_path: Path
) -> None:
    """A pod that mounts it elsewhere passes two variables; the shim reads the rest."""
    hooked(model, tmp_path / "filled")
    moved = tmp_path / "mounted" / "warm"
    moved.parent.mkdir()
    (tmp_path / "filled").rename(moved)

    started(model, {"PYTHONPATH": str(moved / "shim"), "PREWARM_DIR": str(moved)})


def test_a_cache_directory_at_another_path_stays_warm(model: Model, tmp_path: Path) -> None:
    shutil.copytree(model.place.cache_dir, tmp_path / "mirror")

    started(model, hooked(model, tmp_path / "warm", "--manifest", str(tmp_path / "mirror")))


def test_another_working_directory_and_another_home_stay_warm(model: Model, tmp_path: Path) -> None:
    for name in ("elsewhere", "home"):
        (tmp_path / name).mkdir()

    started(
        model,
        hooked(model, tmp_path / "warm"),
        cwd=tmp_path / "elsewhere",
        environ={"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "home")},
    )


@pytest.mark.parametrize("how", ["method", "forward"])
def test_compiling_in_place_stays_warm(model: Model, tmp_path: Path, how: str) -> None:
    """``m.compile()`` and ``m.forward = torch.compile(m.forward)``."""
    started(model, hooked(model, tmp_path / "warm"), how=how)


@pytest.fixture
def open_root() -> Iterator[Path]:
    """A directory that every user can enter, which pytest's own are not."""
    path = Path(tempfile.mkdtemp(prefix="prewarm-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def test_another_user_stays_warm(open_root: Path) -> None:
    """Root builds; the proof, the hook and the server are another user's, by their own Python."""
    python = another_python(open_root / "python")
    require_nobody(python)
    place = Place(open_root)
    place.registry.mkdir()
    model = make_model(
        place, "block", ("[compile]", f'interpreter = ["{python}"]\n[compile]'), source=BLOCK
    )

    scan = place.prewarm("scan")

    assert scan.returncode == 0, scan.stdout + scan.stderr
    assert model.entry["proof"]["proved_as"] == str(NOBODY)
    home, into = open_root / "home", open_root / "home" / "warm"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    shutil.copytree(PACKAGE, open_root / "installed" / "prewarm")
    hook = as_nobody(
        [
            *(str(python), "-m", "prewarm.cli", "hook", "block/v1", "--json", "--on-miss", "fail"),
            *("--manifest", str(place.cache_dir), "--into", str(into)),
        ],
        home=home,
        variables={"PYTHONPATH": str(open_root / "installed")},
    )
    assert hook.returncode == 0, hook.stderr
    assert into.stat().st_uid == NOBODY
    shutil.copy(ALONE, home / "serve.py")
    words = [str(python), str(home / "serve.py"), *asked(model)[1:]]
    variables = json.loads(hook.stdout)["variables"]
    was_warm(as_nobody(words, home=home, variables=variables), into)
