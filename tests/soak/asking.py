"""Who asks a service during a soak: hooks, HTTP readers, deployments that wait, an operator."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import shlex
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..shop import FAKE
from .registry import Registry

#: A hook may find nothing proven, since what it asks for changes all the time.
EXPECTED = (0, 3)
TIMEOUT_S = 60


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


@dataclass
class Asking:
    """Asks one service in every way, one thing at a time; ``happened`` counts what came of it."""

    place: Path
    environ: Mapping[str, str]
    registry: Registry
    port: int
    seed: int
    #: Bundles that somebody here damaged, which the server gives as they lie there.
    damaged: set[str]
    happened: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._tag = ""

    def prewarm(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "prewarm.cli", *words],
            env=dict(self.environ), capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip

    # -- hooks

    def hook(self) -> None:
        """Run a hook for some model, from the directory, the Unix socket or over TCP."""
        names = self.registry.names()
        if not names:
            return
        name = self._random.choice(names)
        state = self.place / "state"
        where = self._random.choice(
            [str(self.place / "cache"), f"unix:{state / 'prewarm.sock'}",
             f"http://127.0.0.1:{self.port}"]
        )  # fmt: skip
        how = where.partition(":")[0] if ":" in where else "directory"
        into = self.place / "private" / f"{how}-{self._random.randrange(2)}"
        trust = ["--trust", str(state / "signing.pub")] if how != "directory" else []
        done = self.prewarm(
            "hook", name, "--into", str(into), "--manifest", where, "--on-miss", "fail",
            "--interpreter", shlex.join([sys.executable, str(FAKE)]), *trust,
        )  # fmt: skip
        self.happened[f"hook {how}: {done.returncode}"] += 1
        if done.returncode not in EXPECTED and "no such model" not in done.stderr:
            self._note(f"hook {how} ended with {done.returncode}: {done.stderr}")

    # -- HTTP

    def read(self) -> None:
        """Read the manifest and one of its bundles, in two ranges, and check it."""
        connection = self._connection()
        try:
            answer = self._get(connection, "/v1/manifest", {"If-None-Match": self._tag})
            if answer is None:
                return
            head, body = answer
            self._tag = head.get("etag", "")
            found = [
                entry["bundle"]
                for manifest in json.loads(body)["manifests"]
                for entry in manifest["signed"]["entries"]
            ]
            if found:
                self._read_bundle(connection, self._random.choice(found))
            for path in ("/metrics", "/healthz", "/readyz"):
                self._get(connection, path, {})
        finally:
            connection.close()

    def _read_bundle(
        self, connection: http.client.HTTPConnection, bundle: Mapping[str, Any]
    ) -> None:
        path, half = f"/v1/bundles/{bundle['sha256']}", bundle["size_bytes"] // 2
        parts = []
        for place in (f"bytes=0-{half - 1}", f"bytes={half}-"):
            answer = self._get(connection, path, {"Range": place})
            if answer is None:
                return
            parts.append(answer[1])
        is_right = hashlib.sha256(b"".join(parts)).hexdigest() == bundle["sha256"]
        self.happened[f"bundle read: {'right' if is_right else 'damaged'}"] += 1
        if not is_right and bundle["sha256"] not in self.damaged:
            self._note(f"{path} came with another content")

    def wait_for(self) -> None:
        """Wait for a model as a deployment does, and go away before the end now and then."""
        names = self.registry.names()
        if not names:
            return
        asked = {"model": self._random.choice(names), "wait_s": 3}
        connection = UnixConnection(self.place / "state" / "prewarm.sock")
        try:
            connection.request("POST", "/v1/requests", json.dumps(asked))
            if self._random.randrange(3) == 0:
                self.happened["request left"] += 1
                return
            answer = connection.getresponse()
            answer.read()
            self.happened[f"request: {answer.status}"] += 1
        finally:
            connection.close()

    def report(self) -> None:
        """Report a start."""
        answer = self._last_manifest()
        if not answer:
            return
        entry = self._random.choice(answer)
        zeros = dict.fromkeys(
            ("graphs_compiled", "fx_misses", "aot_misses", "cpp_compiled", "triton_compiled"), 0
        )
        told = {
            "model": entry["model"], "environment": entry["environment"],
            "bundle": entry["bundle"]["sha256"], "first_answer_s": 1.0, "report": zeros,
        }  # fmt: skip
        connection = UnixConnection(self.place / "state" / "prewarm.sock")
        try:
            connection.request("POST", "/v1/reports", json.dumps(told))
            answered = connection.getresponse()
            text = answered.read()
            self.happened[f"report: {answered.status}"] += 1
            if answered.status not in (200, 201, 204, 404):
                self._note(f"a report was answered with {answered.status}: {text[:300]!r}")
        finally:
            connection.close()

    def _last_manifest(self) -> list[dict[str, Any]]:
        path = self.place / "cache" / "manifests" / "soak.json"
        if not path.is_file():
            return []
        entries: list[dict[str, Any]] = json.loads(path.read_bytes())["signed"]["entries"]
        return entries

    def _connection(self) -> http.client.HTTPConnection:
        if self._random.randrange(2):
            return UnixConnection(self.place / "state" / "prewarm.sock")
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)

    def _get(
        self, connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str]
    ) -> tuple[Mapping[str, str], bytes] | None:
        """Return the headers, by small letters, and the body; None for nothing new or gone."""
        connection.request("GET", path, headers=dict(headers))
        answer = connection.getresponse()
        body = answer.read()
        kind = "/".join(path.split("/")[:3])
        self.happened[f"GET {kind}: {answer.status}"] += 1
        if answer.status in (200, 206):
            return {name.lower(): value for name, value in answer.getheaders()}, body
        if answer.status not in (304, 404):
            self._note(f"GET {path}: {answer.status} {body[:200]!r}")
        return None

    # -- the operator

    def look(self) -> None:
        """Ask what there is, as a person does."""
        names = self.registry.names()
        words = self._random.choice(
            [["status", "--json"], ["status", "--log"], ["gc", "--dry-run", "--json"],
             ["explain", self._random.choice(names or ["none"]), "--json"]]
        )  # fmt: skip
        done = self.prewarm(*words)
        self.happened[f"{words[0]}: {done.returncode}"] += 1
        if done.returncode and words[0] != "explain":
            self._note(f"{' '.join(words)} ended with {done.returncode}: {done.stderr}")

    def keep_house(self) -> None:
        """Let the service keep house, and try again what failed."""
        for words in (["gc"], ["retry"]):
            done = self.prewarm(*words)
            self.happened[f"{words[0]}: {done.returncode}"] += 1
            if done.returncode:
                self._note(f"{words[0]} ended with {done.returncode}: {done.stderr}")

    def damage(self) -> None:
        """Flip a byte of a published bundle, as a failing disk does."""
        entries = self._last_manifest()
        if not entries:
            return
        sha256 = self._random.choice(entries)["bundle"]["sha256"]
        path = self.place / "cache" / "bundles" / "sha256" / sha256[:2] / f"{sha256}.tar.zst"
        self.damaged.add(sha256)
        try:
            with path.open("r+b") as file:
                file.seek(os.fstat(file.fileno()).st_size // 2)
                file.write(b"\x00damaged")
            self.happened["damaged"] += 1
        except FileNotFoundError:
            return

    def _note(self, line: str) -> None:
        if len(self.wrong) < 50:
            self.wrong.append(line[:500])
