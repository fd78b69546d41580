"""Fixtures of the command line: the command in this process and as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from prewarm.cli.main import main
from prewarm.store.database import Database

Result = tuple[int, str, str]


@pytest.fixture
def prewarm(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run a command here and return its exit code and what it printed."""

    def run(*arguments: object) -> Result:
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def prewarm_process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command as a process of its own."""

    def run(
        *arguments: object, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "prewarm.cli", *map(str, arguments)],
            env=os.environ | dict(environ or {}),
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def database(state_dir: Path) -> Iterator[Database]:
    with Database(state_dir / "prewarm.db") as opened:
        yield opened
