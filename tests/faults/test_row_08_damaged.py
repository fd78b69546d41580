"""Row 8, damaged artifacts: refused before unpacking, set aside, built again, and told.

Upstream: vllm #35061, edutelligence #579.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from prewarm.build.step import Step
from prewarm.store.bundle import bundle_path
from prewarm.store.quarantine import read_quarantine
from prewarm.store.status import Status


def flip_a_byte(bundle: Path, _: Path) -> None:
    with bundle.open("r+b") as file:
        file.seek(bundle.stat().st_size // 2)
        [byte] = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def cut_in_half(bundle: Path, _: Path) -> None:
    os.truncate(bundle, bundle.stat().st_size // 2)


def empty(bundle: Path, _: Path) -> None:
    os.truncate(bundle, 0)


def replace(bundle: Path, other: Path) -> None:
    shutil.copy(other, bundle)


def put_a_directory(bundle: Path, _: Path) -> None:
    bundle.unlink()
    bundle.mkdir()
    (bundle / "file").touch()


def remove(bundle: Path, _: Path) -> None:
    bundle.unlink()


#: Each with what is told while the entry waits, and how many bundles are kept for inspection.
CASES = [
    ("a byte flipped in the bundle", flip_a_byte, "its bundle is damaged (sha256 ", 1),
    ("the bundle cut in half", cut_in_half, "its bundle has ", 1),
    ("the bundle emptied", empty, "its bundle has 0 bytes, not ", 1),
    ("another valid bundle in its place", replace, "its bundle ", 1),
    ("a directory in its place", put_a_directory, "its bundle is no file", 1),
    ("the bundle gone", remove, "its bundle is missing", 0),
]


@pytest.mark.parametrize(
    ("case", "damage", "told", "kept"), CASES, ids=[case[1].__name__ for case in CASES]
)
def test_it_is_refused_told_set_aside_and_built_again(
    shop, fault_row, case: str, damage: Callable[[Path, Path], None], told: str, kept: int
) -> None:
    shop.model("m1", graph="one")
    shop.model("m2", b"other weights", graph="two")
    shop.scan()
    bundle, other = (
        bundle_path(shop.settings.cache_dir, shop.entry(model).bundle_sha256)
        for model in ("m1", "m2")
    )
    damage(bundle, other)

    # A deployment: nothing is unpacked, and it is told who mends it.
    code, line = shop.hook("m1", "--on-miss", "fail")
    assert code == 3, line
    assert line.startswith("prewarm: error: ")
    assert line.endswith("; the builder builds it again with its next `prewarm scan`\n")
    assert line.count("\n") == 1
    code, line = shop.hook("m1")
    assert code == 0
    assert line.startswith("prewarm: warning: ")
    assert line.endswith("; starting cold\n")
    assert not list((shop.root / "private").rglob("inductor"))

    # The builder: it leaves the manifest before it is built again, with its reason.
    waiting = []

    def look(step: Step) -> None:
        if step.what == "begin":
            waiting.append((shop.entry("m1"), shop.manifest()["entries"]))

    shop.steps = Telling(look)
    assert shop.scan().all_warm
    [(entry, published)] = waiting
    assert (entry.status, entry.code) == (Status.QUEUED, "quarantined")
    assert entry.reason.startswith(told)
    assert [found["model"] for found in published] == ["m2"]
    assert read_quarantine(shop.settings.state_dir).bundles == kept
    assert shop.builds("m1") == ["compiled"] * 2
    code, line = shop.hook("m1", "--on-miss", "fail")
    assert (code, line) == (0, "")

    # And it rests by its new proof.
    for _ in range(2):
        assert shop.scan().all_warm
    assert shop.builds("m1") == ["compiled"] * 2
    assert shop.builds("m2") == ["compiled"]
    fault_row(row=8, case=case, alone=None, said=f"queued, {entry.code}: {entry.reason}")


ALONE = """\
import json, torch
compiled = torch.compile(lambda x: torch.sin(x) * 2)
failed = None
try:
    compiled(torch.ones(8))
except Exception as error:
    failed = type(error).__name__
from torch._dynamo.utils import counters
print(json.dumps([failed, counters["inductor"]["fxgraph_cache_miss"]]))
"""


def start_alone(cache: Path) -> subprocess.Popen[bytes]:
    """Start torch alone; its last line says what it raised and how many graphs it missed."""
    variables = {
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    }
    argv = [sys.executable, "-W", "ignore", "-c", ALONE]
    return subprocess.Popen(
        argv, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


def told(process: subprocess.Popen[bytes]) -> tuple[int, str | None, int]:
    """Return the exit code, what was raised, and the graphs that were missed."""
    out, _ = process.communicate(timeout=300)
    failed, missed = json.loads(out.splitlines()[-1]) if out.strip() else (None, 0)
    return process.returncode, failed, missed


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What torch alone makes of each kind of damaged artifact."""
    root = tmp_path_factory.mktemp("alone")
    assert told(start_alone(root / "whole")) == (0, None, 1)
    kinds = {"a kernel's .so": "*.so", "a graph entry": "fxgraph/*/*/*"}
    for kind, pattern in kinds.items():
        shutil.copytree(root / "whole", root / kind)
        doomed = [path for path in (root / kind).rglob(pattern) if path.is_file()]
        assert doomed, pattern
        for path in doomed:
            os.truncate(path, path.stat().st_size // 2)
    started = {kind: start_alone(root / kind) for kind in kinds}
    found = {}
    for kind, process in started.items():
        code, failed, missed = told(process)
        if code or failed:
            how = failed or f"exit code {code}"
            found[kind] = f"the first request fails ({how})"
        else:
            assert missed
            found[kind] = "compiled again, with a warning in the log"
    return found


@pytest.mark.parametrize("kind", ["a kernel's .so", "a graph entry"])
def test_an_artifact_cut_in_half_in_the_deployment_s_directory_is_put_back(
    shop, fault_row, alone: dict[str, str], kind: str
) -> None:
    shop.model("m1")
    shop.scan()
    shop.hook("m1")
    part = "kernel" if "kernel" in kind else "fxgraph"
    (artifact,) = (shop.root / "private").rglob(f"g-{part}")
    whole = artifact.read_bytes()
    os.truncate(artifact, len(whole) // 2)

    code, line = shop.hook("m1", "--env-file", str(shop.root / "env"), "--on-miss", "fail")

    assert (code, line) == (0, "")
    assert artifact.read_bytes() == whole
    assert "1 files were put back" in shop.printed
    fault_row(
        row=8,
        case=f"{kind} cut in half",
        alone=alone[kind],
        said="1 files were put back (the hook, before the server starts)",
    )


class Telling(list):
    """A list of steps that tells each one on."""

    def __init__(self, told: Callable[[Step], None]) -> None:
        super().__init__()
        self._told = told

    def append(self, step: Step) -> None:
        super().append(step)
        self._told(step)
