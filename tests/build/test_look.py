"""A look of the daemon: what the registry and the database hold becomes jobs on the board."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from prewarm.build.job_board import JobBoard
from prewarm.build.look import Looker
from prewarm.build.run import open_run
from prewarm.registry.presence import registry_is_there
from prewarm.store.status import Status
from prewarm.store.timestamp import timestamp


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
