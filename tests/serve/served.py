"""A house that is served for a test: real files, a real database, a real server in a thread."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prewarm import __version__
from prewarm.environment import Environment
from prewarm.serve.house import House, Limits
from prewarm.serve.listening import Listener, listen_on_path, listen_on_port
from prewarm.serve.metrics import Metrics
from prewarm.serve.server import Server
from prewarm.store.bundle import bundle_path
from prewarm.store.database import DATABASE_NAME, Database
from prewarm.store.manifest import build_manifest, write_manifest
from prewarm.store.signing import load_or_create_key
from prewarm.store.status import Status
from prewarm.store.timestamp import timestamp

TOKEN = "a-token-for-the-tests"
NOW_S = 1_800_000_000.0
FACTS: dict[str, str | None] = {"device": "cpu", "torch": "2.13.0"}
HERE = Environment.from_facts(FACTS).id


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        assert self.json["error"]["message"]
        return str(self.json["error"]["code"])


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(os.fspath(self._path))


@dataclass
class Served:
    """A directory with a builder's files, and the server over it."""

    root: Path
    limits: Limits = field(default_factory=Limits)
    token: str | None = TOKEN
    monotonic_s: Callable[[], float] = lambda: 0.0
    is_ready: bool = True
    woken: int = 0
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cache_dir.mkdir(parents=True)
        self.state_dir.mkdir(parents=True)
        # A shared parent may be writable by a group where the tests run.
        for directory in (self.cache_dir, self.state_dir):
            directory.chmod(0o755)
        with Database(self.database_path) as database:
            database.put_environment(
                HERE, facts=FACTS, probe={}, fingerprint="f", at=timestamp(NOW_S)
            )
        self.metrics = Metrics(self.database_path, now_s=lambda: NOW_S)
        self.house = House(
            cache_dir=self.cache_dir,
            database=self.database_path,
            uid=os.geteuid(),
            token=self.token,
            wake=self._wake,
            ready=lambda: self.is_ready,
            metrics=self.metrics,
            tell=self.told.append,
            limits=self.limits,
            now_s=lambda: NOW_S,
            monotonic_s=self.monotonic_s,
        )

    @property
    def cache_dir(self) -> Path:
        return self.root / "cache"

    @property
    def state_dir(self) -> Path:
        return self.root / "state"

    @property
    def database_path(self) -> Path:
        return self.state_dir / DATABASE_NAME

    @property
    def unix_path(self) -> Path:
        return self.root / "prewarm.sock"

    @contextmanager
    def running(self) -> Iterator[Served]:
        self.start()
        try:
            yield self
        finally:
            self.server.stop(1)

    def start(self) -> None:
        self.listeners: list[Listener] = [
            listen_on_path(self.unix_path, mode=0o666),
            listen_on_port("127.0.0.1", 0, token=None),
        ]
        self.server = Server(self.house, self.listeners)
        self.server.start()

    @property
    def port(self) -> int:
        return int(self.listeners[1].socket.getsockname()[1])

    @property
    def connections(self) -> int:
        return len(self.server._uvicorn.server_state.connections)

    def connect(self, *, tcp: bool = False) -> http.client.HTTPConnection:
        if tcp:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        return UnixConnection(self.unix_path)

    def ask(
        self,
        method: str,
        path: str,
        *,
        tcp: bool = False,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        connection = self.connect(tcp=tcp)
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        try:
            connection.request(method, path, body=data, headers=headers or {})
            found = connection.getresponse()
            return Answer(found.status, found.headers, found.read())
        finally:
            connection.close()

    def get(self, path: str, **how: Any) -> Answer:
        return self.ask("GET", path, **how)

    def post(self, path: str, body: Any, **how: Any) -> Answer:
        return self.ask("POST", path, body=body, **how)

    def add_bundle(self, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        path = bundle_path(self.cache_dir, sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return sha256

    def add_entry(self, model: str, status: Status, **fields: Any) -> None:
        """Record a checkpoint with its entry; not published."""
        aliases = fields.pop("aliases", [])
        environment_id = fields.pop("environment_id", HERE)
        with Database(self.database_path) as database:
            database.see_checkpoint(
                model, "/r", digest=None, architecture=None, aliases=aliases, at=timestamp(NOW_S)
            )
            database.put_entry(model, environment_id, at=timestamp(NOW_S), status=status, **fields)

    def publish(self, builder: str = "builder") -> None:
        with Database(self.database_path) as database:
            manifest = build_manifest(
                builder=builder,
                version=__version__,
                entries=database.entries(),
                checkpoints=database.checkpoints(),
                environments=database.environments(),
                at=timestamp(NOW_S),
            )
        write_manifest(self.cache_dir, manifest, load_or_create_key(self.state_dir))

    def _wake(self) -> None:
        self.woken += 1


def record(digit: str = "a", **others: Any) -> dict[str, Any]:
    """A manifest entry without model and aliases, as the database keeps it."""
    return {
        "checkpoint": digit * 64, "architecture": "b" * 64, "environment": HERE,
        "build_key": "c" * 64, "status": "warm", "reason": None, "code": None, "requires": [],
        "covers": "any order",
        "bundle": {"sha256": digit * 64, "size_bytes": 1, "unpacked_bytes": 1, "files": 1},
        "compile": {"mode": "default", "asked_mode": "default", "dynamic": False,
                    "recompile_limit": None},
        "variables": {}, "shape_sets": [], "proof": {}, **others,
    }  # fmt: skip
