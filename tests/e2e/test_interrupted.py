"""A scan that is ended at any point of a build.

The next one finishes the work, and nothing is torn.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

FAKE = Path(__file__).parents[1] / "build" / "fake_child.py"
WAIT_S = 60

#: Points of a build that the child marks, and moments of the builder between them.
POINTS = (
    "compile-begun",
    "compile-0",
    "compile-1",
    "compile-2",
    "compile-answered",
    "packing",
    "prove-full",
    "prove-order",
    "prove-answered",
    "published",
)

DECLARATION = """\
[model]
match = "m*"
loader = "python"
factory = "fake:build"
device = "cpu"
interpreter = [{python}, {fake}]
[compile]
dynamic = false
[[shapes]]
name = "rows"
inputs.x = {{ dtype = "float32", shape = ["batch", 4] }}
sizes = {{ batch = [1, 2] }}
"""


def _checkpoint(place, name: str, marks: Path, hold: tuple[str, ...]) -> None:
    text = DECLARATION.format(python=json.dumps(sys.executable), fake=json.dumps(str(FAKE)))
    (place.registry / "prewarm.toml").write_text(text)
    directory = place.registry / name
    directory.mkdir(exist_ok=True)
    (directory / "model.bin").write_bytes(b"weights")
    marks.mkdir(exist_ok=True)
    behaviour = {"marks": str(marks), "hold": list(hold)}
    (directory / "behaviour.json").write_text(json.dumps(behaviour))


def _until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    ends_s = time.monotonic() + WAIT_S
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends_s, "the point was not reached"
        time.sleep(0.002)


def _reached(place, marks: Path, point: str) -> Callable[[], bool]:
    if point == "packing":
        return lambda: any((place.state_dir / "work").glob("build-*/*bundle.tar.zst*"))
    if point == "published":
        return lambda: any((place.cache_dir / "bundles").glob("sha256/*/*"))
    return lambda: (marks / f"{point}.reached").exists()


def assert_whole(place) -> None:
    """Every visible file of the cache directory is what its name and signature promise."""
    for path in place.cache_dir.rglob("*"):
        if path.is_dir():
            continue
        if path.suffix == ".json":
            body = json.loads(path.read_text())
            assert body["signatures"] and body["signed"]["format"] == 1
        elif not path.name.startswith("."):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            assert path.name == f"{digest}.tar.zst"


def assert_nobody_left(place) -> None:
    """No child of a scan of this place is alive."""
    ours = os.fsencode(f"PREWARM_WORKDIR={place.state_dir}")
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                variables = (process / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            assert not any(variable.startswith(ours) for variable in variables), process


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_next_scan_finishes_the_work(
    make_place: Callable[..., object], number: signal.Signals, point: str
) -> None:
    place = make_place(PREWARM_GRACE_S="0")
    marks = place.root / "marks"
    held = () if point in ("packing", "published") else (point,)
    _checkpoint(place, "m1", marks, held)
    process = subprocess.Popen(
        [sys.executable, "-m", "prewarm.cli", "scan"],
        env=place.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _until(_reached(place, marks, point), process)
    process.send_signal(number)
    _, told = process.communicate(timeout=WAIT_S)
    assert_whole(place)
    if number is signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    elif process.returncode != 0:  # the last entry may just have come to rest
        assert process.returncode == 130, told
        assert "interrupted" in told
        assert_nobody_left(place)
        assert {entry["status"] for entry in place.status().values()} <= {"queued", "warm"}

    _checkpoint(place, "m1", marks, ())
    finished = place.prewarm("scan")
    assert finished.returncode == 0, finished.stderr
    assert place.status()["m1"]["status"] == "warm"
    assert_whole(place)
    assert_nobody_left(place)

    assert place.prewarm("scan").returncode == 0  # grace 0: what nobody names is gone now
    named = place.status()["m1"]["bundle"]["sha256"]
    files = [path for path in (place.cache_dir / "bundles").rglob("*") if path.is_file()]
    assert [path.name for path in files] == [f"{named}.tar.zst"]
    assert not list((place.state_dir / "work").glob("build-*"))
