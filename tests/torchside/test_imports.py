"""Whoever waits for a module is called once it is there, and the import is what it was."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from prewarm.torchside.imports import when_imported

#: torch's settings modules become of such a class while their code runs.
CLOSED = """
import sys, types
class Closed(types.ModuleType):
    def __setattr__(self, name, value):
        raise AttributeError(name + " does not exist")
value = 1
sys.modules[__name__].__class__ = Closed
"""


@pytest.fixture(autouse=True)
def finders() -> Iterator[None]:
    before, modules = list(sys.meta_path), set(sys.modules)
    yield
    sys.meta_path[:] = before
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def test_a_module_that_takes_no_attributes_is_imported_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed_settings.py").write_text(CLOSED)
    monkeypatch.syspath_prepend(str(tmp_path))
    told: list[ModuleType] = []
    when_imported(frozenset({"closed_settings"}), told.append)
    when_imported(frozenset({"closed_settings"}), told.append)
    module = importlib.import_module("closed_settings")
    assert told == [module, module]
    assert module.value == 1
    assert module.__spec__ is not None
    assert "prewarm" not in repr(module.__loader__)
    assert module.__loader__ is module.__spec__.loader


def test_one_that_is_there_already_is_told_at_once() -> None:
    told: list[ModuleType] = []
    when_imported(frozenset({"json"}), told.append)
    assert [module.__name__ for module in told] == ["json"]
