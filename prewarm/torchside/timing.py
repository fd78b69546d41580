"""Steady milliseconds of a call, compiled against eager.

Medians of alternating rounds in one process.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

#: Each side is called for at least this long in all, and between these many times.
BUDGET_S = 0.6
CALLS_AT_LEAST = 5
CALLS_AT_MOST = 200


def side_by_side_ms(
    compiled: Callable[[], object], eager: Callable[[], object]
) -> tuple[float, float]:
    """Return the median milliseconds of both calls.

    Taken in turns so that both see the same machine.
    """
    for warm_up in (compiled, eager, compiled, eager):
        warm_up()
    taken_ms: tuple[list[float], list[float]] = ([], [])
    ends_s = time.perf_counter() + 2 * BUDGET_S
    while len(taken_ms[0]) < CALLS_AT_LEAST or (
        time.perf_counter() < ends_s and len(taken_ms[0]) < CALLS_AT_MOST
    ):
        for call, ms in zip((compiled, eager), taken_ms, strict=True):
            started_s = time.perf_counter()
            call()
            ms.append((time.perf_counter() - started_s) * 1000)
    return statistics.median(taken_ms[0]), statistics.median(taken_ms[1])
