"""What the crash tests share: the fault library, and the tally that is told at the end.

Variables: ``PREWARM_CRASH_SEED`` (the first seed), ``PREWARM_CRASH_RESULT`` (a file for the result
as JSON).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .arena import Arena
from .injector import build_library
from .tally import Tally

_STARTED_S = time.monotonic()
_TALLY = Tally()
_ASKED = {name: os.environ.get(f"PREWARM_CRASH_{name}") for name in ("SEED", "RESULT")}


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the library that makes calls fail."""
    return build_library(tmp_path_factory.mktemp("library"))


@pytest.fixture
def make_arena(tmp_path: Path, library: Path) -> Iterator[Callable[..., Arena]]:
    """Return a maker of arenas, all of whose processes are ended afterwards."""
    arenas: list[Arena] = []

    def make(name: str = "arena", **options: object) -> Arena:
        arena = Arena(tmp_path / name, library, **options)  # type: ignore[arg-type]
        arenas.append(arena)
        return arena

    yield make
    for arena in arenas:
        arena.close()


@pytest.fixture
def tally() -> Tally:
    """Return what counts faults; it is the same for the whole run."""
    return _TALLY


@pytest.fixture
def seed() -> int:
    """Return the first seed."""
    return int(_ASKED["SEED"] or 20261130)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: pytest.ExitCode
) -> None:
    """Tell how many faults of each kind happened; keep it where that is asked for."""
    if not _TALLY.counts or exitstatus:
        return
    terminalreporter.section("crash harness")
    for line in _TALLY.lines():
        terminalreporter.write_line(line)
    if _ASKED["RESULT"]:
        _TALLY.write(Path(_ASKED["RESULT"]), seconds=time.monotonic() - _STARTED_S)
