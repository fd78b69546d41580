"""A place for end-to-end tests.

A registry, a cache and a state directory, and prewarm as a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .compiler import forgetful

SERVER = Path(__file__).parent / "e2e" / "server.py"
TIMEOUT_S = 500


@dataclass(frozen=True)
class Place:
    """Directories of one test, and the processes that work on them."""

    root: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def registry(self) -> Path:
        return self.root / "registry"

    @property
    def cache_dir(self) -> Path:
        return self.root / "cache"

    @property
    def state_dir(self) -> Path:
        return self.root / "state"

    def environ(self) -> dict[str, str]:
        return {
            **{
                name: value for name, value in os.environ.items() if not name.startswith("PREWARM_")
            },
            "PREWARM_REGISTRY": str(self.registry),
            "PREWARM_CACHE_DIR": str(self.cache_dir),
            "PREWARM_STATE_DIR": str(self.state_dir),
            "PREWARM_SETTLE_S": "0.2",
            "PREWARM_BUILDER": "test",
            **self.variables,
        }

    def prewarm(
        self, *words: str, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run prewarm to its end."""
        return subprocess.run(
            [sys.executable, "-m", "prewarm.cli", *words],
            env=self.environ() | dict(variables or {}),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def status(self) -> dict[str, dict[str, Any]]:
        """Return the entries of ``prewarm status --json`` by model."""
        told = self.prewarm("status", "--json")
        assert told.returncode == 0, told.stderr
        return {entry["model"]: entry for entry in json.loads(told.stdout)["entries"]}

    def compiles(self) -> int:
        """Count the compile runs that the database knows of."""
        import sqlite3

        with sqlite3.connect(f"file:{self.state_dir / 'prewarm.db'}?mode=ro", uri=True) as database:
            (count,) = database.execute("SELECT count(*) FROM builds").fetchone()
        database.close()
        return int(count)

    def serve(
        self, kind: str, model: Path, order: str = "declared", *, sourced: Path | None
    ) -> dict[str, Any]:
        """Start a server that knows nothing of prewarm, with an env file sourced by sh if given."""
        environ = self.environ() | {"HF_HUB_OFFLINE": "1"}
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            environ.pop(name, None)
        if sourced is None:  # cold: a cache directory of its own, empty
            environ["TORCHINDUCTOR_CACHE_DIR"] = str(self.root / "cold-cache")
            environ["PATH"] = forgetful()
        source = f'set -a; . "{sourced}"; set +a; ' if sourced else ""
        done = subprocess.run(
            [
                "sh",
                "-c",
                f'{source}exec "$@"',
                "sh",
                sys.executable,
                str(SERVER),
                kind,
                str(model),
                order,
            ],
            env=environ,
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return answer

    def hooked(
        self, model: str, *words: str, variables: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Run the hook for a model that must have a bundle; return the variables to set."""
        into = str(self.into(model))
        told = self.prewarm(
            "hook", model, "--into", into, "--json", "--on-miss", "fail", *words,
            variables=variables,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr
        found: dict[str, str] = json.loads(told.stdout)["variables"]
        return found

    def into(self, model: str) -> Path:
        """Return the private directory of a model's deployment."""
        return self.root / "private" / model.replace("/", "-")

    def started_warm(
        self, model: str, kind: str, path: Path, order: str = "declared", *, python_path: str = ""
    ) -> dict[str, Any]:
        """Run the hook as the server's pre-start, start the server, and check that it hit.

        The hook sees the server's own ``PYTHONPATH``, as under systemd, and merges it.
        """
        env_file = self.root / f"{model.replace('/', '-')}.env"
        into = self.into(model)
        hooked = self.prewarm(
            "hook", model, "--into", str(into), "--env-file", str(env_file), "--on-miss", "fail",
            variables={"PYTHONPATH": python_path} if python_path else None,
        )  # fmt: skip
        assert hooked.returncode == 0, hooked.stderr
        answer = self.serve(kind, path, order, sourced=env_file)
        assert answer["compilers"] == []
        assert answer["fx"].get("fxgraph_cache_miss", 0) == 0, answer
        assert answer["aot"].get("autograd_cache_miss", 0) == 0, answer
        assert answer["aot"].get("autograd_cache_bypass", 0) == 0, answer
        assert answer["aot"]["autograd_cache_hit"] >= 1
        return answer
