"""The full form, random: several places at once, each with its own seed, until all kills are made.

``pytest -m nightly tests/crash`` runs it with the chosen points and tells the sum. A failure says
its seed; ``PREWARM_CRASH_SEED`` sets the first one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from .arena import Arena
from .kinds import KINDS, NO_KILLS, draw_round
from .rounds import Rounds
from .tally import Tally

#: ``kill -9`` and power cuts at random moments.
KILLS = 240
#: A place is left after so many rounds for a new one: what only happens in an empty one counts too.
ROUNDS_OF_PLACE = 15
#: Rounds wait more than they work.
AT_ONCE = 3

MOST_ROUNDS = 4 * KILLS


@pytest.mark.nightly
@pytest.mark.timeout(4 * 3600)
def test_kills_at_random_moments_lose_nothing(
    make_arena: Callable[..., Arena], tally: Tally, seed: int
) -> None:
    kinds = [kind.__name__ for kind in KINDS if kind.__name__ not in NO_KILLS]
    before = tally.of(*kinds)

    def place(number: int) -> None:
        """Go through the rounds of one place."""
        if tally.of(*kinds) - before >= KILLS:
            return
        tally.seeds.append(seed + number)
        rounds = Rounds(make_arena(f"a{number}"), tally, seed=seed + number)
        draw = random.Random(seed + number)
        for _ in range(ROUNDS_OF_PLACE):
            draw_round(rounds, draw)
        rounds.finish()
        rounds.arena.remove()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [pool.submit(place, n) for n in range(MOST_ROUNDS // ROUNDS_OF_PLACE)]:
            try:
                done.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    assert tally.of(*kinds) - before >= KILLS
    assert all(tally.of(kind.__name__) for kind in KINDS), "each kind happened"
