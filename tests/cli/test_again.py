from __future__ import annotations

from collections.abc import Iterator

import pytest

from prewarm.cli import again as module
from prewarm.cli.again import again, changes


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0)


def looks(values: list[int]) -> Iterator[int]:
    """Give one value after the other, then an interrupt."""
    yield from values
    raise KeyboardInterrupt


def test_it_looks_until_it_is_interrupted() -> None:
    found = []
    values = looks([1, 1, 2])
    with pytest.raises(KeyboardInterrupt):
        for value in again(lambda: next(values)):
            found.append(value)
    assert found == [1, 1, 2]


def test_only_looks_with_news_are_given() -> None:
    found = []
    values = looks([10, 11, 20, 29, 10])
    with pytest.raises(KeyboardInterrupt):
        for value in changes(12, lambda: next(values), of=lambda value: value // 10):
            found.append(value)
    assert found == [20, 10]
