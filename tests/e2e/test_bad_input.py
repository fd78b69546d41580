"""Bad input: one clear line, status ``failed``, exit code 1, and every other entry goes on.

Declarations, checkpoints and machines are tried with the fake child, so that only the case itself
is slow; what a factory may do wrong is tried with the real child, since torch is under it.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

FAKE = Path(__file__).parents[1] / "build" / "fake_child.py"

GOOD = """\
[model]
match = "v*"
loader = "python"
factory = "fake:build"
device = "cpu"
interpreter = [{python}, {fake}]
[compile]
dynamic = false
[[shapes]]
name = "rows"
inputs.x = {{ dtype = "float32", shape = ["batch", 4] }}
sizes = {{ batch = [1] }}
"""

REAL = """\
[model]
match = "v*"
loader = "{loader}"
factory = "{factory}"
path = ["src"]
device = "cpu"
{extra}
[compile]
mode = ["max-autotune"]
dynamic = false
timeout_s = {timeout_s}
[[shapes]]
name = "rows"
inputs.x = {{ dtype = "float32", shape = ["batch", 4] }}
sizes = {{ batch = [1] }}
"""

SOURCE = """\
import os
import subprocess
import sys
import time

import torch


def raises():
    raise ValueError("no such flavour: mint")


def hangs():
    time.sleep(3600)


def exits():
    os._exit(0)


def stays():
    code = "import time; time.sleep(3600)"
    subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)
    if os.fork() == 0:
        time.sleep(3600)
    raise ValueError("left two behind")


def allocates():
    held = []
    while True:
        held.append(bytearray(b"x") * (32 << 20))


def linear():
    return torch.nn.Linear(4, 4)
"""


def good_text() -> str:
    return GOOD.format(python=json.dumps(sys.executable), fake=json.dumps(str(FAKE)))


@pytest.fixture
def place(make_place: Callable[..., object]):
    """A place with one good entry, ``good/v1``."""
    made = make_place()
    write(made, "good", good_text())
    return made


def write(place, model: str, declaration: str, weights: bytes = b"weights") -> Path:
    """Write a model's declaration and one version; return the version's directory."""
    version = place.registry / model / "v1"
    version.mkdir(parents=True)
    (place.registry / model / "prewarm.toml").write_text(declaration)
    (version / "model.bin").write_bytes(weights)
    return version


def write_real(
    place, factory: str, *, loader: str = "python", extra: str = "", timeout_s: int = 60
):
    declaration = REAL.format(factory=factory, loader=loader, extra=extra, timeout_s=timeout_s)
    version = write(place, "bad", declaration)
    (version / "model.bin").unlink()
    torch.save({}, version / "weights.pt")
    source = place.registry / "bad" / "src"
    source.mkdir()
    (source / "bad.py").write_text(SOURCE)
    return version


def scan_fails(place, model: str = "bad/v1", **variables: str) -> dict:
    """Scan; the bad entry fails with one line, the good one beside it becomes warm."""
    scanned = place.prewarm("scan", variables=variables)
    entries = place.status()
    assert scanned.returncode == 1, scanned.stdout + scanned.stderr
    assert entries["good/v1"]["status"] == "warm", entries["good/v1"]
    bad = entries[model]
    assert bad["status"] == "failed"
    assert bad["reason"] and "\n" not in bad["reason"]
    assert bad["reason"] in scanned.stdout
    return bad


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "rows"', 'nmae = "rows"', ["prewarm.toml:10", "nmae", "name"]),
        ("dynamic = false", "dynmaic = false", ["prewarm.toml:8", "dynmaic", "dynamic"]),
        ("dynamic = false\n", "", ["dynamic", "not stated"]),
        ("sizes = { batch = [1] }\n", "", ["rows", "x", "batch"]),
        ("batch = [1]", "bathc = [1]", ["batch"]),
        ('dtype = "float32"', 'dtype = "float23"', ["dtype", "float23"]),
        ("[compile]", "[compile", ["prewarm.toml:7"]),
    ],
    ids=["unknown key", "misspelt", "dynamic", "unbound", "misspelt size", "dtype", "no toml"],
)
def test_declaration(place, old: str, new: str, words: list[str]) -> None:
    text = good_text()
    assert old in text
    write(place, "bad", text.replace(old, new, 1))
    model = "bad/prewarm.toml" if new == "[compile" else "bad/v1"
    reason = scan_fails(place, model)["reason"]
    assert all(word in reason for word in words), reason


def test_factory_that_cannot_be_imported(place) -> None:
    write_real(place, "nowhere:build")
    bad = scan_fails(place)
    assert bad["code"] == "cannot_import"
    assert "nowhere:build" in bad["reason"]


def test_factory_that_raises(place) -> None:
    write_real(place, "bad:raises")
    bad = scan_fails(place)
    assert bad["reason"].startswith("ValueError: no such flavour: mint (bad.py:")


def test_factory_that_hangs(place) -> None:
    write_real(place, "bad:hangs", timeout_s=8)
    bad = scan_fails(place)
    assert bad["code"] == "timeout"
    assert "within 8 s" in bad["reason"]


def test_factory_that_exits(place) -> None:
    write_real(place, "bad:exits")
    bad = scan_fails(place)
    assert bad["code"] == "ended_early"
    assert "exit code 0 before it had answered" in bad["reason"]


def test_factory_that_forks_and_stays(place) -> None:
    write_real(place, "bad:stays")
    assert "left two behind" in scan_fails(place)["reason"]
    ours = os.fsencode(f"PREWARM_WORKDIR={place.state_dir}")
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                variables = (process / "environ").read_bytes()
            except OSError:
                continue
            assert ours not in variables, process


def test_factory_that_allocates_without_end(place) -> None:
    write_real(place, "bad:allocates")
    bad = scan_fails(place, PREWARM_CHILD_MEMORY_BYTES=str(2 << 30))
    assert bad["code"] == "memory_limit"
    assert "2.0 GiB" in bad["reason"]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"weight": torch.zeros(4, 4), "bais": torch.zeros(4)}, ["bais"]),
        ({"weight": torch.zeros(5, 4), "bias": torch.zeros(4)}, ["weight"]),
    ],
    ids=["names", "shapes"],
)
def test_weights_that_do_not_fit(place, state: dict, words: list[str]) -> None:
    version = write_real(
        place, "bad:linear", loader="torch", extra='state_dict = "model.safetensors"'
    )
    save_file(state, version / "model.safetensors")
    bad = scan_fails(place)
    assert bad["code"] == "bad_weights"
    assert all(word in bad["reason"] for word in ["model.safetensors", *words]), bad["reason"]


@pytest.mark.parametrize("kind", ["truncated", "preallocated"])
def test_safetensors_that_are_not_whole(place, kind: str) -> None:
    version = write(place, "bad", good_text())
    file = version / "model.safetensors"
    save_file({"weight": torch.ones(64, 64)}, file)
    size = file.stat().st_size
    if kind == "truncated":
        os.truncate(file, size // 2)
    else:
        file.write_bytes(b"\0" * size)
    old_s = time.time() - 3600
    os.utime(file, (old_s, old_s))
    bad = scan_fails(place)
    assert bad["code"] == "bad_checkpoint"
    assert "model.safetensors" in bad["reason"]


def test_missing_shard(place) -> None:
    version = write(place, "bad", good_text())
    save_file({"a": torch.ones(2)}, version / "model-00001-of-00002.safetensors")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (version / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    bad = scan_fails(place)
    assert "model-00002-of-00002.safetensors" in bad["reason"]


class _Bomb:
    def __reduce__(self):
        return os.system, ("true",)


def test_pickle_that_is_no_weights_only_file(place) -> None:
    version = write_real(place, "bad:linear", loader="torch", extra='state_dict = "weights.pt"')
    torch.save({"weight": _Bomb()}, version / "weights.pt", pickle_module=pickle)
    bad = scan_fails(place)
    assert "weights.pt" in bad["reason"]
    assert "system" in bad["reason"]


def test_checkpoint_that_vanishes_while_it_is_built(place) -> None:
    version = write(place, "bad", good_text().replace("[1]", "[3]"))
    marks = place.root / "marks"
    marks.mkdir()
    behaviour = {"marks": str(marks), "hold": ["compile-begun"]}
    (version / "behaviour.json").write_text(json.dumps(behaviour))
    process = subprocess.Popen(
        [sys.executable, "-m", "prewarm.cli", "scan"],
        env=place.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: (marks / "compile-begun.reached").exists(), process)
    shutil.rmtree(version)
    (marks / "compile-begun.go").touch()
    out, told = process.communicate(timeout=120)
    assert process.returncode == 1, told
    assert "bad/v1: failed: the checkpoint vanished while it was built" in out
    assert place.status()["good/v1"]["status"] == "warm"


def test_no_compiler(place) -> None:
    scanned = place.prewarm("scan", variables={"CXX": "/nowhere/g++"})
    entry = place.status()["good/v1"]
    assert scanned.returncode == 1
    assert (entry["status"], entry["code"]) == ("failed", "no_compiler")
    assert "install g++ or set CXX" in entry["reason"]


def test_cache_dir_that_cannot_be_written(place) -> None:
    (place.root / "cache").write_text("a file stands here")
    scanned = place.prewarm("scan")
    assert scanned.returncode == 1
    (line,) = [line for line in scanned.stderr.splitlines() if "error" in line]
    assert str(place.cache_dir) in line
    assert not place.state_dir.joinpath("logs").exists(), "told before a build, not after it"


@pytest.mark.parametrize("full", ["cache", "state"])
def test_no_space_left(place, full: str) -> None:
    directory = place.root / full
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(directory)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        filler = directory / "filler"
        fill(filler, leave_bytes=0 if full == "cache" else 300 << 10)
        version = place.registry / "good" / "v1"
        (version / "behaviour.json").write_text(json.dumps({"graph": "g" * 40}))
        scanned = place.prewarm("scan")
        assert scanned.returncode == 1, scanned.stdout
        assert "space" in scanned.stderr, scanned.stderr
        filler.unlink()
        subprocess.run(["mount", "-o", "remount,size=64m", str(directory)], check=True)
        assert place.prewarm("scan").returncode == 0
        assert place.status()["good/v1"]["status"] == "warm"
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=False)


def fill(filler: Path, *, leave_bytes: int) -> None:
    """Fill a small file system but for ``leave_bytes``."""
    free = os.statvfs(filler.parent)
    filler.write_bytes(b"\1" * max(0, free.f_bavail * free.f_frsize - leave_bytes))


def test_two_scans_at_once(place) -> None:
    marks = place.root / "marks"
    marks.mkdir()
    behaviour = {"marks": str(marks), "hold": ["compile-begun"]}
    (place.registry / "good" / "v1" / "behaviour.json").write_text(json.dumps(behaviour))
    first = subprocess.Popen(
        [sys.executable, "-m", "prewarm.cli", "scan"],
        env=place.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: (marks / "compile-begun.reached").exists(), first)
    second = place.prewarm("scan")
    assert second.returncode == 1
    assert f"prewarm scan (pid {first.pid}, since " in second.stderr
    (marks / "compile-begun.go").touch()
    _, told = first.communicate(timeout=120)
    assert first.returncode == 0, told


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    ends_s = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends_s
        time.sleep(0.005)
