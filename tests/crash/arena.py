"""One place under faults: a registry, a cache and a state directory, and the prewarm processes.

Owns starting, killing and ending the processes, checkpoints that arrive, and waiting until all work
is done. What must hold afterwards is ``checks.py``'s.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from prewarm.build.process_group import MARKER
from prewarm.errors import PrewarmError
from prewarm.store.view import StatusRow, read_status

from ..shop import FAKE
from .injector import Injector

WAIT_S = 90

# One mode: a killed compile run counts as one that memory ended, so a lighter mode would be tried.
_DECLARATION = """\
[model]
match = "*"
loader = "python"
factory = "fake:build"
device = "cpu"
interpreter = [{python}, {fake}]
[compile]
mode = ["max-autotune"]
dynamic = false
[[shapes]]
name = "rows"
inputs.x = {{ dtype = "float32", shape = ["batch", 4] }}
sizes = {{ batch = [1] }}
"""


class Arena:
    """Real directories and real processes; ``package`` is another copy of prewarm to run."""

    def __init__(
        self,
        root: Path,
        library: Path,
        *,
        package: Path | None = None,
        grace_s: float | None = None,
    ) -> None:
        self.root = root / "place"
        self.registry, self.cache_dir = self.root / "registry", self.root / "cache"
        self.state_dir, self.private = self.root / "state", self.root / "private"
        self.registry.mkdir(parents=True)
        self.private.mkdir()
        self.injector = Injector(library, self.root, root / "beside")
        self.log = root / "beside" / "log"
        self.daemon: subprocess.Popen[bytes] | None = None
        self.models: set[str] = set()
        self._package = package
        self.grace_s = grace_s
        text = _DECLARATION.format(python=json.dumps(sys.executable), fake=json.dumps(str(FAKE)))
        (self.registry / "prewarm.toml").write_text(text)
        # Files without weights are no checkpoint, however long they lie there.
        (self.registry / "half").mkdir()
        (self.registry / "half" / "behaviour.json").write_text("{}")

    @property
    def interpreter(self) -> str:
        """The interpreter of deployments, as a command line."""
        return shlex.join([sys.executable, str(FAKE)])

    # -- processes

    def environ(self, *, faulty: bool = True) -> dict[str, str]:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("PREWARM_")}
        if self._package is not None:
            kept["PYTHONPATH"] = str(self._package)
        if self.grace_s is not None:
            kept["PREWARM_GRACE_S"] = str(self.grace_s)
        return kept | (self.injector.variables if faulty else {}) | {
            "PREWARM_REGISTRY": str(self.registry),
            "PREWARM_CACHE_DIR": str(self.cache_dir),
            "PREWARM_STATE_DIR": str(self.state_dir),
            "PREWARM_BUILDER": "test",
            "PREWARM_SETTLE_S": "0.05",
            "PREWARM_LISTEN": "off",
        }  # fmt: skip

    def spawn(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a prewarm that obeys the injector; what it tells goes to the log."""
        with self.log.open("ab") as log:
            log.write(f"--- {' '.join(words)}\n".encode())
            log.flush()
            argv = [sys.executable, "-m", "prewarm.cli", *words]
            return subprocess.Popen(argv, env=self.environ(), stdout=log, stderr=log, cwd=self.root)

    def prewarm(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a prewarm without faults to its end."""
        return subprocess.run(
            [sys.executable, "-m", "prewarm.cli", *words],
            env=self.environ(faulty=False), capture_output=True, text=True, timeout=WAIT_S,
            check=False, cwd=self.root,
        )  # fmt: skip

    def start(self) -> subprocess.Popen[bytes]:
        assert self.daemon is None or self.daemon.poll() is not None
        self.daemon = self.spawn("serve", "--log-format", "json")
        return self.daemon

    @property
    def alive(self) -> bool:
        return self.daemon is not None and self.daemon.poll() is None

    def kill(self) -> None:
        """End the daemon as ``kill -9`` does; its children are left to themselves."""
        if self.daemon is not None:
            self.daemon.kill()
            self.daemon.wait(WAIT_S)

    def end(self) -> int:
        """End the daemon as a service manager does."""
        assert self.daemon is not None
        self.daemon.send_signal(signal.SIGTERM)
        return self.daemon.wait(30)

    def children(self) -> list[psutil.Process]:
        """Return the processes that carry the mark of this place: what the daemon started."""
        mark = os.fsencode(f"{MARKER}={self.state_dir}")
        found = []
        for process in psutil.process_iter():
            try:
                variables = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(variable.startswith(mark) for variable in variables):
                found.append(process)
        return found

    def helpers(self) -> list[psutil.Process]:
        """Return the children of the daemon as the kernel knows them."""
        try:
            return psutil.Process(self.daemon.pid).children() if self.daemon else []
        except psutil.Error:
            return []

    def lose_state(self) -> None:
        """Take the state directory away, all but the key; children of the dead daemon end."""
        for process in self.children():
            process.kill()
        for path in self.state_dir.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif not path.name.startswith("signing."):
                path.unlink()

    def close(self) -> None:
        """End every process; what lies there goes, unless it is to be looked at."""
        self.kill()
        for process in self.children():
            process.kill()

    def remove(self) -> None:
        """End every process and remove the place."""
        self.close()
        shutil.rmtree(self.root.parent, ignore_errors=True)

    # -- the registry

    def arrive(self, name: str, *, graph: str = "g") -> None:
        """Let a checkpoint arrive, its weights in two pieces."""
        directory = self.registry / name
        directory.mkdir()
        behaviour: dict[str, Any] = {"graph": graph, "bulk_bytes": 20_000}
        (directory / "behaviour.json").write_text(json.dumps(behaviour))
        with (directory / "model.bin").open("wb") as file:
            file.write(b"weights of ")
            file.flush()
            file.write(name.encode())
        self.models.add(name)

    def leave(self, name: str) -> None:
        """Let a checkpoint go."""
        directory = self.registry / name
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()
        self.models.discard(name)

    def stir(self) -> None:
        """Change something in the registry that is no checkpoint, so that the daemon looks."""
        (self.registry / "half" / "behaviour.json").write_text("{}")

    # -- waiting

    def rows(self) -> dict[str, StatusRow]:
        """Return the entries by model; none while the database is only being made or is locked."""
        try:
            return {row.model: row for row in read_status(self.state_dir)}
        except PrewarmError:
            return {}

    def is_quiet(self) -> bool:
        """Tell whether every checkpoint is warm and published, and what went is retired."""
        if not (self.state_dir / "prewarm.db").exists():
            return False
        rows = self.rows()
        present = {name: row.status for name, row in rows.items() if row.status != "retired"}
        if present != dict.fromkeys(self.models, "warm") or self.published() != self.models:
            return False
        return self.daemon is None or not self.alive or self.has_looked()

    def has_looked(self) -> bool:
        """Ask the daemon whether it has looked through the registry since its start."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
                channel.settimeout(5)
                channel.connect(str(self.state_dir / "prewarm.sock"))
                channel.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                return b" 200 " in channel.recv(64)
        except OSError:
            return False

    def published(self) -> set[str]:
        try:
            text = (self.cache_dir / "manifests" / "test.json").read_text()
        except FileNotFoundError:
            return set()
        return {entry["model"] for entry in json.loads(text)["signed"]["entries"]}

    def until(self, condition: Callable[[], object], what: str) -> None:
        ends_s = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < ends_s, f"{what} did not come\n{self.told()}"
            time.sleep(0.01)

    def told(self) -> str:
        """Return the end of the log and what stands in the database, for a failed check."""
        lines = self.log.read_text(errors="replace").splitlines()[-40:]
        rows = [f"{r.model}: {r.status} {r.code} {r.attempts} {r.reason}"
                for r in self.rows().values()]  # fmt: skip
        return "\n".join([*lines, "---", *rows])
