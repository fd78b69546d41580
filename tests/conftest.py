"""What holds for every test: nobody's real state is touched. And what several folders use.

``shop`` is a registry under the fake child, ``make_place`` one with real torch. Compiles that any
test of a run has made are not made again, see ``compiler.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .compiler import remembering_compiler

# torch takes this variable into its keys, and children, hooks and servers of the tests must agree.
os.environ.pop("CI", None)

if TYPE_CHECKING:
    from .place import Place
    from .shop import Shop


#: Files that take longest, longest first, by CPU time. They are begun first, so that the two
#: workers of a whole run end at about the same time.
LONGEST = (
    "test_minilm", "test_row_02_limit", "test_loaders", "test_row_06_uncacheable", "test_shapes",
    "test_controls", "test_server_edits", "test_row_01_order", "test_row_14_stale",
    "test_two_interpreters", "test_interrupted", "test_bad_input", "test_edits",
    "test_row_05_retuning", "test_row_03_drift", "test_row_04_hit_that_compiles",
)  # fmt: skip
#: Then what lies here, then the rest.
LONG_FOLDERS = ("crash", "soak", "e2e", "faults", "torchside")


def pytest_configure(config: pytest.Config) -> None:
    """Let files be handed out in our order; xdist would begin with those of most tests."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first; within a file the order stays."""
    ranks = {name: rank for rank, name in enumerate((*LONGEST, *LONG_FOLDERS))}

    def rank(item: pytest.Item) -> int:
        return min(ranks.get(name, len(ranks)) for name in (item.path.stem, item.path.parent.name))

    items.sort(key=rank)


@pytest.fixture(scope="session", autouse=True)
def _compiler_remembers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # one for all workers
    before = os.environ["PATH"]
    path = remembering_compiler(str(base))
    if path is not None:
        os.environ["PATH"] = path
    yield
    os.environ["PATH"] = before


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
