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

import psutil
import pytest

from prewarm.store.bundle import bundle_path
from prewarm.store.manifest import read_manifests
from prewarm.store.signing import load_or_create_key
from prewarm.store.whole_file import is_part

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
    manifests, problems = read_manifests(place.cache_dir)
    assert problems == ()
    key = load_or_create_key(place.state_dir, None)
    assert all(read.signed_by([key.public]) for read in manifests)
    known = {read.path for read in manifests}
    for read in manifests:
        for entry in read.manifest.entries:
            known.add(bundle_path(place.cache_dir, entry.bundle.sha256))
            assert bundle_path(place.cache_dir, entry.bundle.sha256).is_file()
    for path in place.cache_dir.rglob("*"):
        if path.is_file() and path not in known and not is_part(path.name):
            assert path.suffix == ".zst", path
        if path.suffix == ".zst":
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            assert path == bundle_path(place.cache_dir, digest)


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


def test_a_real_child_ends_with_a_scan_that_is_killed(make_place: Callable[..., object]) -> None:
    place = make_place()
    on = place.root / "on"
    source = place.registry / "src"
    source.mkdir()
    (source / "endless.py").write_text(
        f"import pathlib, time\n\ndef build():\n    pathlib.Path({str(on)!r}).touch()\n"
        "    time.sleep(3600)\n"
    )
    text = DECLARATION.format(python=json.dumps(sys.executable), fake='""')
    text = text.replace("fake:build", "endless:build").replace(', ""]', ']\npath = ["src"]')
    (place.registry / "prewarm.toml").write_text(text)
    (place.registry / "m1").mkdir()
    (place.registry / "m1" / "model.bin").write_bytes(b"weights")
    process = subprocess.Popen(
        [sys.executable, "-m", "prewarm.cli", "scan"],
        env=place.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _until(on.exists, process)
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.kill()
    process.communicate(timeout=WAIT_S)
    assert psutil.wait_procs(children, timeout=WAIT_S)[1] == []
    assert_nobody_left(place)
