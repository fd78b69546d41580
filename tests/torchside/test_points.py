"""A point wraps what is there and says what is not."""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from prewarm.torchside.events import EventLog
from prewarm.torchside.points import Point, install, module_is_gone
from prewarm.torchside.upstream import POINTS
from prewarm.torchside.watch import Tally


class Owner:
    def plain(self) -> str:
        return "plain"

    @staticmethod
    def static() -> str:
        return "static"

    @classmethod
    def of_class(cls) -> str:
        return cls.__name__


def module() -> types.ModuleType:
    made = types.ModuleType("somewhere")
    made.Owner = type("Owner", (), dict(Owner.__dict__))  # type: ignore[attr-defined]
    made.function = lambda: "function"  # type: ignore[attr-defined]
    return made


def point(attribute: str) -> Point:
    def make(inner: Any, log: EventLog, tally: Tally) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return ["watched", inner(*args, **kwargs)]

        return wrapper

    return Point("somewhere", attribute, "field", make, "test")


@pytest.mark.parametrize(
    ("attribute", "answer"),
    [("function", "function"), ("Owner.plain", "plain"), ("Owner.static", "static"),
     ("Owner.of_class", "Owner")],
)  # fmt: skip
def test_an_attribute_stays_what_it_is_and_is_watched(
    attribute: str, answer: str, tmp_path: Path
) -> None:
    made = module()
    assert install(point(attribute), made, EventLog(str(tmp_path)), Tally())
    owner, _, name = attribute.rpartition(".")
    called = getattr(made.Owner() if owner else made, name)
    assert called() == ["watched", answer]


@pytest.mark.parametrize("attribute", ["renamed", "Owner.renamed", "Gone.plain", "Owner.mro"])
def test_what_is_not_there_is_told(attribute: str, tmp_path: Path) -> None:
    assert not install(point(attribute), module(), EventLog(str(tmp_path)), Tally())


def test_a_module_is_gone_only_from_a_package_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "installed"
    (package / "inner").mkdir(parents=True)
    for name in ("__init__.py", "module.py", "inner/__init__.py", "inner/deep.py"):
        (package / name).write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    there = ["installed", "installed.module", "installed.inner", "installed.inner.deep"]
    assert [name for name in there if module_is_gone(name)] == []
    assert module_is_gone("installed.renamed")
    assert module_is_gone("installed.inner.renamed")
    assert not module_is_gone("not_installed.module")
    assert "installed" not in sys.modules


def _names(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, node) for alias in node.names)


@pytest.mark.parametrize("module", sorted({one.module for one in POINTS if "torch" in one.module}))
def test_every_point_stands_in_the_installed_torch(module: str) -> None:
    # Read, not imported: most of these modules need a GPU before torch itself imports them.
    file = Path(str(distribution("torch").locate_file(module.replace(".", "/") + ".py")))
    body = ast.parse(file.read_text(encoding="utf-8")).body
    for point in (one for one in POINTS if one.module == module):
        found: Any = body
        for name in point.attribute.split("."):
            node = dict(_names(found)).get(name)
            assert node is not None, f"{module}:{point.attribute} is not there"
            found = getattr(node, "body", [])
