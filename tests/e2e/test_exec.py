"""A server without a word of it, started by ``prewarm exec`` as another user, and what it reports.

One real scan and one builder that serves it over HTTP; the deployments are another user's, by that
user's Python, from another directory, with a private directory below ``/run``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..faults.bed import BLOCK, Model, make_model
from ..interpreters import NOBODY, another_python, require_nobody
from ..place import TIMEOUT_S, Place

PACKAGE = Path(__file__).parents[2] / "prewarm"

SERVER = """\
import json, sys
import torch

sys.path.insert(0, sys.argv[1])
import own

model = own.build().eval()
model.load_state_dict(torch.load(sys.argv[2], weights_only=True))
compiled = torch.compile(model, mode="default", dynamic=False)
with torch.inference_mode():
    for batch in json.loads(sys.argv[3]):
        x = torch.randn(batch, 64)
        assert torch.allclose(compiled(x), model(x), atol=1e-3)
print("answered", flush=True)
sys.stdin.read()
"""

Until = Callable[[Callable[[], bool]], None]


@dataclass(frozen=True)
class Builder:
    """A model that is published over HTTP, and who may tell of its starts."""

    model: Model
    python: Path
    url: str
    key: str
    token_file: Path
    run: Path

    @property
    def entry(self) -> dict[str, Any]:
        return self.model.entry


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """A directory that every user can enter, which pytest's own are not."""
    path = Path(tempfile.mkdtemp(prefix="prewarm-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def run_directory() -> Iterator[Path]:
    """Another user's directory below ``/run``, as systemd's ``RuntimeDirectory=`` makes it."""
    may_run = not os.statvfs("/run").f_flag & os.ST_NOEXEC
    made = Path(tempfile.mkdtemp(prefix="prewarm-", dir="/run" if may_run else None))
    made.chmod(0o755)
    os.chown(made, NOBODY, NOBODY)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def builder(root: Path, run_directory: Path) -> Iterator[Builder]:
    python = another_python(root / "python")
    require_nobody(python)
    shutil.copytree(PACKAGE, root / "installed" / "prewarm")
    (root / "server.py").write_text(SERVER)
    # The service's copy is for itself alone.
    for name, mode in (("token", 0o644), ("service-token", 0o600)):
        (root / name).write_text("of-the-test-and-long-enough\n")
        (root / name).chmod(mode)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{found.getsockname()[1]}"
    place = Place(
        root,
        {
            "PREWARM_STEADY": "0",
            "PREWARM_LISTEN": listen,
            "PREWARM_TOKEN_FILE": str(root / "service-token"),
        },
    )
    place.registry.mkdir()
    model = make_model(
        place, "block", ("[compile]", f'interpreter = ["{python}"]\n[compile]'), source=BLOCK
    )
    scan = place.prewarm("scan")
    assert scan.returncode == 0, scan.stdout + scan.stderr
    with (root / "serve.log").open("wb") as log:
        daemon = subprocess.Popen(
            [str(python), "-m", "prewarm.cli", "serve"],
            env=place.environ() | {"PYTHONPATH": str(root / "installed")},
            stderr=log,
        )
    try:
        key = (place.state_dir / "signing.pub").read_text().strip()
        yield Builder(model, python, f"http://{listen}", key, root / "token", run_directory)
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(timeout=60)


@pytest.fixture
def answering(builder: Builder, wait_until: Until) -> Builder:
    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{builder.url}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    wait_until(answers)
    return builder


def test_a_server_that_knows_nothing_starts_warm_and_status_shows_it(
    answering: Builder, wait_until: Until
) -> None:
    assert "prewarm" not in SERVER
    into = answering.run / "as-declared"

    served(answering, into, [8], wait_until)

    (start,) = reported(answering, into)
    assert (start["counts"], start["cannot_tell"], start["graphs_found"]) == ({}, [], 1)
    assert into.stat().st_uid == NOBODY
    (told,) = answering.entry["starts"]
    assert (told["compiled"], told["counts"], told["cannot_tell"]) == (False, {}, [])
    assert told["bundle"] == answering.entry["bundle"]["sha256"]
    assert told["first_answer_s"] > 0
    listing = answering.model.place.prewarm("status", "block/v1")
    assert "warm" in listing.stdout and "no start was reported" not in listing.stdout


def test_a_size_that_nobody_declared_is_named_by_report_drift_and_status(
    answering: Builder, wait_until: Until
) -> None:
    into = answering.run / "one-more"

    served(answering, into, [8, 5], wait_until)

    place = answering.model.place
    drift = place.prewarm("drift", str(into))
    assert drift.returncode == 1
    assert 'in [[shapes]] "rows" add { batch = 5 } to sizes' in drift.stdout
    (start,) = reported(answering, into)
    assert start["counts"]["graphs_compiled"] == 1
    newest = answering.entry["starts"][0]
    assert (newest["compiled"], newest["counts"]["graphs_compiled"]) == (True, 1)
    assert "recompiles" not in newest["counts"], "a size of its own is traced once by design"
    (missing,) = answering.entry["missing"]
    assert (missing["shape_set"], missing["sizes"]) == ("rows", [{"batch": 5}])
    listing = place.prewarm("status", "block/v1")
    assert "rows with batch = 5" in listing.stdout


def served(builder: Builder, into: Path, batches: list[int], wait_until: Until) -> None:
    """Start the server as another user and let it serve until its start is told."""
    home = into.with_name(f"{into.name}-home")
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    place = builder.model.place
    words = [
        *(str(builder.python), "-m", "prewarm.cli", "exec", "block/v1", "--on-miss", "fail"),
        *("--manifest", builder.url, "--trust", builder.key, "--into", str(into), "--"),
        *(str(builder.python), str(place.root / "server.py"), str(builder.model.source.parent)),
        *(str(builder.model.directory / "v1" / "weights.pt"), json.dumps(batches)),
    ]
    server = subprocess.Popen(
        words,
        user=NOBODY, group=NOBODY, extra_groups=(), cwd="/",
        env={
            "PATH": os.defpath, "HOME": str(home), "TMPDIR": str(home),
            "PYTHONPATH": str(place.root / "installed"),
            "PREWARM_TOKEN_FILE": str(builder.token_file),
        },
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip

    def told() -> list[Path]:
        return list(into.glob("reports/*/told"))

    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "answered\n", server.communicate("")
        wait_until(lambda: server.poll() is not None or any(map(os.path.getsize, told())))
    finally:
        out, err = server.communicate("", timeout=TIMEOUT_S)
    assert (server.returncode, out) == (0, ""), err[-3000:]
    assert "not sent" not in err, err


def reported(builder: Builder, into: Path) -> list[dict[str, Any]]:
    """Return the starts of a private directory as ``drift --json`` has them."""
    told = builder.model.place.prewarm("drift", str(into), "--json")
    found: list[dict[str, Any]] = json.loads(told.stdout)["starts"]
    return found
