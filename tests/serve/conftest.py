from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .served import Served


@pytest.fixture(scope="module")
def open_root() -> Iterator[Path]:
    """A directory with a short path that every user can reach; pytest's own are closed."""
    path = Path(tempfile.mkdtemp(prefix="prewarm-serve-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def served(open_root: Path) -> Iterator[Served]:
    """One house for a whole file of tests, which do not disturb each other."""
    with Served(open_root / "shared").running() as running:
        yield running


@pytest.fixture
def serve(open_root: Path) -> Iterator[Callable[..., Served]]:
    """Return a maker of houses with limits of their own."""
    running: list[Served] = []

    def make(**how: Any) -> Served:
        house = Served(Path(tempfile.mkdtemp(dir=open_root)), **how)
        house.root.chmod(0o755)
        house.start()
        running.append(house)
        return house

    yield make
    for house in running:
        house.server.stop(1)
