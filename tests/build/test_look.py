"""A look of the daemon: what the registry and the database hold becomes jobs on the board."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

import pytest

from prewarm.build import look as look_module
from prewarm.build.bench import Bench
from prewarm.build.job_board import JobBoard
from prewarm.build.look import Looker
from prewarm.build.run import open_run
from prewarm.build.survey import Survey
from prewarm.errors import NotWritable
from prewarm.registry.presence import registry_is_there
from prewarm.store.status import Status
from prewarm.store.timestamp import epoch_seconds, timestamp


def test_what_a_worker_never_gave_back_is_queued_once_its_lease_is_over(
    shop, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    shop.model("m")
    board = JobBoard()
    settings, stop = shop.settings, threading.Event()
    with open_run(
        settings, what="test", report=lambda _: None, stop=stop, now_s=time.time
    ) as bench:
        looker = Looker(bench, board)

        def look() -> int:
            looker.look(registry_is_there(settings.registry, None))
            return len(board.jobs())

        wait_until(lambda: look() == 1)
        for lasts_s, status in ((60.0, Status.BUILDING), (-60.0, Status.QUEUED)):
            until = timestamp(time.time() + lasts_s)
            entry = bench.database.claim(owner="gone", at=bench.at(), lease_until=until)
            assert entry is not None
            look()
            assert bench.database.entries()[0].status is status
            assert bench.database.entries()[0].attempts == 0
            assert len(board.jobs()) == (status is Status.QUEUED)
            if status is Status.BUILDING:
                bench.database.move(
                    entry.id, Status.QUEUED, at=bench.at(), reason="over", lease=entry.lease
                )


def test_it_says_when_what_failed_is_tried_again(shop) -> None:
    shop.model("good")
    shop.scan()
    settings, stop = shop.settings, threading.Event()

    def again_in_s(now_s: float, *settling: str) -> float:
        with open_run(
            settings, what="test", report=lambda _: None, stop=stop, now_s=lambda: now_s
        ) as bench:
            return Looker(bench, JobBoard()).again_in_s(Survey((), (), (), settling))

    assert again_in_s(time.time()) == math.inf
    assert again_in_s(time.time(), "m") == settings.settle_s
    for name in ("first", "second"):
        shop.model(name, name.encode(), graph=name, compile="exit")
    shop.scan()
    due_at = shop.entry("first").next_try_at, shop.entry("second").next_try_at
    due_s = epoch_seconds(min(at for at in due_at if at))
    assert again_in_s(due_s - 5) == pytest.approx(5, abs=0.01)
    due_s = epoch_seconds(max(at for at in due_at if at))
    assert again_in_s(due_s + 5) == math.inf, "what was due before is no reason to look"


def test_what_could_not_be_adopted_is_adopted_by_the_next_look(
    shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Bench] = []

    def adopted(bench: Bench) -> int:
        tried.append(bench)
        if len(tried) == 1:
            raise NotWritable("told by the test")
        return 0

    monkeypatch.setattr(look_module, "adopt", adopted)
    settings, stop = shop.settings, threading.Event()
    with open_run(
        settings, what="test", report=lambda _: None, stop=stop, now_s=time.time
    ) as bench:
        looker, there = Looker(bench, JobBoard()), registry_is_there(settings.registry, None)
        shop.model("m")
        with pytest.raises(NotWritable):
            looker.look(there)
        assert bench.database.entries() == (), "nothing else was done before it"
        looker.look(there)
        looker.look(there)
    assert len(tried) == 2
