"""Looking again and again, for what is shown until it is interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

_T = TypeVar("_T")

#: Between two looks.
EVERY_S = 1.0


def again(look: Callable[[], _T]) -> Iterator[_T]:
    """Yield a look after each pause, without end."""
    while True:
        time.sleep(EVERY_S)
        yield look()


def changes(first: _T, look: Callable[[], _T], *, of: Callable[[_T], object]) -> Iterator[_T]:
    """Yield those later looks in which something is otherwise than in the one before."""
    before = of(first)
    for later in again(look):
        after = of(later)
        if after != before:
            before = after
            yield later
