"""The full form, chosen: a fault at every kind of call by which a first build changes files."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from .arena import Arena
from .injector import Fault
from .points import faults_at, kind_of, trace
from .rounds import Rounds
from .tally import Tally
from .test_random import AT_ONCE

#: Fewer would mean that the trace saw little of what a build does.
LEAST_POINTS = 60
#: Some points lie on paths that another run need not take, such as the last of many commits.
LEAST_HIT = 0.9


@pytest.mark.nightly
@pytest.mark.timeout(4 * 3600)
def test_a_fault_at_any_call_of_a_first_build_loses_nothing(
    make_arena: Callable[..., Arena], tally: Tally
) -> None:
    points = trace(make_arena("trace"))
    assert len(points) > LEAST_POINTS
    faults = [fault for point in points for fault in faults_at(point)]

    def trial(number: int, fault: Fault) -> bool:
        rounds = Rounds(make_arena(f"p{number}"), tally)
        hit = rounds.at_start(kind_of(fault), fault, and_stop=True)
        if number % 5 == 0:
            rounds.finish()
        rounds.arena.remove()
        return hit

    with ThreadPoolExecutor(AT_ONCE) as pool:
        doing = [pool.submit(trial, number, fault) for number, fault in enumerate(faults)]
        hits = []
        for done in doing:
            try:
                hits.append(done.result())
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    assert sum(hits) > LEAST_HIT * len(faults)
