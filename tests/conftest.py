"""What holds for every test: nobody's real state is touched. And what several folders use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# torch takes this variable into its keys, and children, hooks and servers of the tests must agree.
os.environ.pop("CI", None)

if TYPE_CHECKING:
    from .place import Place
    from .shop import Shop


@pytest.fixture(autouse=True)
def _no_real_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Point every default directory at a place that cannot be made.

    And forget prewarm's variables.
    """
    for name in list(os.environ):
        if name.startswith("PREWARM_") or name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/no-cache-in-tests")
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/no-state-in-tests")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/dev/null/no-config-in-tests")
    yield


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A small registry under the fake child."""
    from .shop import open_shop  # the builder is slow to import, and most tests don't need it

    return open_shop(tmp_path)


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], None]:
    """Return a wait for a condition, with a deadline."""
    import time

    def wait(condition: Callable[[], bool]) -> None:
        ends_s = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < ends_s, "the condition did not come true"
            time.sleep(0.01)

    return wait


@pytest.fixture(scope="module")
def make_place(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Place]:
    """Return a maker of places; module-wide, since a real compile takes long."""
    from .place import Place

    def make(**variables: str) -> Place:
        # Steady speed is not what these tests are about, and takes seconds for each call.
        place = Place(tmp_path_factory.mktemp("place"), {"PREWARM_STEADY": "0", **variables})
        place.registry.mkdir()
        return place

    return make
