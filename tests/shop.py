"""A small registry under the fake child, and scans of it in this process."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import sys
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prewarm.build.scan_run import ScanResult, run_scan
from prewarm.build.step import Step
from prewarm.cli.main import main
from prewarm.config import Settings
from prewarm.store.database import DATABASE_NAME, Database
from prewarm.store.entries import Entry

FAKE = Path(__file__).parent / "build" / "fake_child.py"

DECLARATION = """\
[model]
match = "*"
loader = "python"
factory = "fake:build"
device = "cpu"
interpreter = [{python}, {fake}]
[compile]
mode = ["max-autotune", "max-autotune-no-cudagraphs", "default"]
dynamic = false
timeout_s = {timeout_s}
[[shapes]]
name = "rows"
inputs.x = {{ dtype = "float32", shape = ["batch", 4] }}
sizes = {{ batch = [1, 2] }}
[[shapes]]
name = "more"
inputs.x = {{ dtype = "float32", shape = ["batch", 4] }}
sizes = {{ batch = [3] }}
"""


@dataclass
class Shop:
    """A registry of models that share one declaration."""

    root: Path
    settings: Settings
    steps: list[Step] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    printed: str = ""

    def declare(self, *, timeout_s: float = 60, change: tuple[str, str] = ("", "")) -> None:
        text = DECLARATION.format(
            python=json.dumps(sys.executable), fake=json.dumps(str(FAKE)), timeout_s=timeout_s
        )
        (self.root / "registry" / "prewarm.toml").write_text(text.replace(*change, 1))

    def model(self, name: str, weights: bytes = b"weights", **behaviour: Any) -> Path:
        directory = self.root / "registry" / name
        directory.mkdir(exist_ok=True)
        (directory / "model.bin").write_bytes(weights)
        (directory / "behaviour.json").write_text(json.dumps(behaviour))
        return directory

    def scan(self, *models: str) -> ScanResult:
        self.steps.clear()
        return run_scan(self.settings, models=models, report=self.steps.append, stop=self.stop)

    def entry(self, model: str) -> Entry:
        with Database(self.settings.state_dir / DATABASE_NAME) as database:
            (found,) = [entry for entry in database.entries() if entry.model == model]
            return found

    def known(self, model: str) -> bool:
        """Say whether a scan has seen a model."""
        with Database(self.settings.state_dir / DATABASE_NAME) as database:
            return any(entry.model == model for entry in database.entries())

    def builds(self, model: str) -> list[str | None]:
        """Return the outcome of each compile run of a model."""
        with Database(self.settings.state_dir / DATABASE_NAME) as database:
            return [
                build.outcome
                for entry in database.entries()
                if entry.model == model
                for build in database.builds(entry.id)
            ]

    def manifest(self) -> dict[str, Any]:
        path = self.settings.cache_dir / "manifests" / "test.json"
        signed: dict[str, Any] = json.loads(path.read_text())["signed"]
        return signed

    def prewarm(self, *words: str) -> tuple[int, str]:
        """Run a command here on this registry; return its exit code and what it told on stderr.

        What it printed is in ``printed``.
        """
        settings, argv = self.settings, list(words)
        for flag, value in (("cache-dir", settings.cache_dir), ("state-dir", settings.state_dir)):
            argv += [f"--{flag}", str(value)]
        told, out = io.StringIO(), io.StringIO()
        with contextlib.redirect_stderr(told), contextlib.redirect_stdout(out):
            code = main(argv)
        self.printed = out.getvalue()
        return code, told.getvalue()

    def hook(self, model: str, *words: str) -> tuple[int, str]:
        """Run the hook for a deployment under the fake interpreter; see ``prewarm``."""
        interpreter = shlex.join([sys.executable, str(FAKE)])
        place = ("--into", str(self.root / "private"), "--interpreter", interpreter)
        return self.prewarm("hook", model, *place, *words)

    def with_settings(self, **changes: Any) -> Shop:
        return Shop(self.root, replace(self.settings, **changes))


def open_shop(root: Path) -> Shop:
    """Return an empty registry below ``root`` with its declaration."""
    (root / "registry").mkdir()
    made = Shop(
        root,
        Settings(
            registry=root / "registry",
            cache_dir=root / "cache",
            state_dir=root / "state",
            builder="test",
            settle_s=0.05,
        ),
    )
    made.declare()
    return made
