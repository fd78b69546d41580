"""One booted container for all tests; each uses models and units of its own names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .box import Box


@pytest.fixture(scope="session")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    from .box import Box
    from .container import KEPT_TREE, make_tree

    tree = Path(KEPT_TREE) if KEPT_TREE else tmp_path_factory.mktemp("tree")
    make_tree(tree)
    box = Box(tree, tmp_path_factory.mktemp("container"))
    try:
        box.boot()
        yield box
    finally:
        box.remove()


@pytest.fixture
def box(booted: Box) -> Iterator[Box]:
    """The container with the service at work, on a registry without models."""
    booted.begin()
    yield booted
    booted.clear()
