"""The README's servers in Python, taken from it as they stand and started: both start warm.

A BERT without layers stands for MiniLM, in the mode that is built quickly; the text is otherwise
the README's.
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ..place import TIMEOUT_S, Place

README = Path(__file__).parents[2] / "README.md"
MODEL = "minilm/v1"
DECLARATION = """\
[model]
match = "*"
loader = "transformers"
class = "AutoModel"
device = "cpu"
dtype = "float32"
[compile]
mode = ["default"]
dynamic = false
[[shapes]]
name = "embed"
inputs.input_ids = { dtype = "int64", shape = ["batch", "seq"], high = 90 }
inputs.attention_mask = { dtype = "int64", shape = ["batch", "seq"], fill = 1 }
sizes = [{ batch = 2, seq = 8 }]
"""
SAVE = """\
import sys, torch
from transformers import BertConfig, BertModel
torch.manual_seed(0)
config = BertConfig(vocab_size=90, hidden_size=32, num_hidden_layers=0, num_attention_heads=2,
                    intermediate_size=64, max_position_embeddings=32)
BertModel(config).save_pretrained(sys.argv[1])
"""

IDS = [[1, 2, 3, 4, 5, 6, 7, 8], [8, 7, 6, 5, 4, 3, 2, 1]]


def block_with(line: str) -> str:
    """Return the README's Python block that holds a line."""
    blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    [found] = [block for block in blocks if line in block]
    return found


@pytest.fixture(scope="module")
def place(make_place: Callable[..., Place]) -> Place:
    made = make_place()
    checkpoint = made.registry / MODEL
    checkpoint.parent.mkdir(parents=True)
    subprocess.run([sys.executable, "-c", SAVE, checkpoint], check=True)
    (checkpoint.parent / "prewarm.toml").write_text(DECLARATION)
    done = made.prewarm("scan")
    assert done.returncode == 0, done.stdout + done.stderr
    return made


@contextmanager
def started(place: Place, name: str, *argv: str) -> Iterator[tuple[Path, Any]]:
    """Start a server with a deployment's directory of its own; end it as a person would."""
    home = place.root / name
    home.mkdir()
    environ = place.environ() | {"XDG_CACHE_HOME": str(home / "cache"), "HF_HUB_OFFLINE": "1"}
    with (home / "told").open("w") as told:
        server = subprocess.Popen(argv, cwd=home, env=environ, stdout=told, stderr=told)
    try:
        yield home, server
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(TIMEOUT_S)


def post(connect: Callable[[], http.client.HTTPConnection], path: str) -> Callable[..., Any]:
    def ask(ids: Any) -> tuple[int, Any]:
        connection = connect()
        body = json.dumps(ids).encode()
        connection.request("POST", path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        found = answer.status, json.loads(answer.read())
        connection.close()
        return found

    return ask


def wait_for(server: Any, home: Path, connect: Callable[[], Any]) -> None:
    """Wait until the server takes connections, or has ended."""
    ends_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < ends_s:
        assert server.poll() is None, (home / "told").read_text()
        connection = connect()
        try:
            connection.connect()
            return
        except OSError:
            time.sleep(0.05)
        finally:
            if connection.sock is not None:
                connection.sock.close()
    raise AssertionError((home / "told").read_text())


def eager(place: Place) -> Any:
    code = (
        "import json, sys, torch\nfrom transformers import AutoModel\n"
        "ids = torch.tensor(json.loads(sys.argv[2]))\n"
        "hidden = AutoModel.from_pretrained(sys.argv[1]).eval()(\n"
        "    input_ids=ids, attention_mask=torch.ones_like(ids))[0]\n"
        "print(json.dumps(hidden.mean(1).tolist()))"
    )
    argv = [sys.executable, "-c", code, str(place.registry / MODEL), json.dumps(IDS)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def require_warm(place: Place, home: Path) -> None:
    [directory] = (home / "cache" / "prewarm" / "deployments").iterdir()
    told = place.prewarm("drift", str(directory), "--json")
    assert told.returncode == 0, told.stdout
    [start] = json.loads(told.stdout)["starts"]
    assert (start["counts"], start["graphs"], start["cannot_tell"]) == ({}, [], [])
    assert start["graphs_found"] == 1


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(self._path))


def test_a_fastapi_server_with_load(place: Place, tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    text = block_with("app = FastAPI()").replace("/models/", f"{place.registry}/")
    (tmp_path / "serve.py").write_text(text)
    # A path of a socket is short.
    argv = [sys.executable, "-m", "uvicorn", "--app-dir", str(tmp_path), "serve:app", "--uds", "s"]

    with started(place, "fastapi", *argv) as (home, server):

        def connect() -> http.client.HTTPConnection:
            return UnixConnection(Path("/proc") / str(server.pid) / "cwd" / "s")

        wait_for(server, home, connect)
        ask = post(connect, "/embed")
        status, vectors = ask(IDS)
        assert status == 200, (home / "told").read_text()
        for found, expected in zip(vectors, eager(place), strict=True):
            assert found == pytest.approx(expected, abs=1e-4)
        # What nobody declared is refused, with what to add, and nothing is compiled for it.
        status, refused = ask([[1, 2, 3]])
        assert status == 422
        assert "add { batch = 1, seq = 3 } to sizes" in refused["detail"]
        assert ask(IDS)[0] == 200
    require_warm(place, home)


def test_a_plain_server_with_exec(place: Place, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = block_with("HTTPServer((").replace("/models/", f"{place.registry}/")
    text = text.replace('"max-autotune"', '"default"').replace("8000", str(port))
    assert "prewarm" not in text.replace(str(place.registry), "")
    (tmp_path / "plain.py").write_text(text)
    [line] = re.findall(r"`(prewarm exec \S+ -- python plain.py)`", README.read_text())
    program, command, model, dashes, python, script = line.split()
    assert (program, python) == ("prewarm", "python")
    argv = [sys.executable, "-m", "prewarm.cli", command, model, dashes, sys.executable]

    with started(place, "plain", *argv, str(tmp_path / script)) as (home, server):

        def connect() -> http.client.HTTPConnection:
            return http.client.HTTPConnection("127.0.0.1", port, timeout=60)

        wait_for(server, home, connect)
        status, vectors = post(connect, "/")(IDS)
        assert status == 200
        for found, expected in zip(vectors, eager(place), strict=True):
            assert found == pytest.approx(expected, abs=1e-4)
    require_warm(place, home)
