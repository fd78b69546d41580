"""A worker takes what is best first, under a lease, and no fault of ours makes it go round."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from prewarm.build import worker as worker_module
from prewarm.build.bench import Bench
from prewarm.build.job_board import JobBoard
from prewarm.build.look import Looker
from prewarm.build.run import open_run
from prewarm.build.step import Step
from prewarm.build.worker import Worker
from prewarm.registry.presence import registry_is_there

Wait = Callable[[Callable[[], bool]], None]


class Crew:
    """A bench, a board and the steps that were told."""

    def __init__(self, bench: Bench, steps: list[Step]) -> None:
        self.bench = bench
        self.steps = steps
        self.board = JobBoard()
        self.trouble: list[str] = []
        self.looker = Looker(bench, self.board)

    def look(self) -> None:
        self.looker.look(registry_is_there(self.bench.settings.registry, None))

    def posts(self, number: int) -> bool:
        """Look once; tell whether so many jobs are up: files must have been quiet before."""
        self.look()
        return len(self.board.jobs()) == number

    def ended(self) -> list[tuple[str, str | None]]:
        return [(step.model, step.outcome) for step in self.steps if step.outcome]

    @contextmanager
    def working(self) -> Iterator[None]:
        one = Worker("cpu", self.bench, self.board, lambda error: self.trouble.append(str(error)))
        one.start()
        try:
            yield
        finally:
            self.bench.stop.set()
            self.board.ring()
            assert one.join(30)


@pytest.fixture
def crew(shop) -> Iterator[Crew]:
    steps: list[Step] = []
    import time

    with open_run(
        shop.settings, what="test", report=steps.append, stop=threading.Event(), now_s=time.time
    ) as bench:
        yield Crew(bench, steps)


def test_small_goes_before_large_and_who_waits_before_all(shop, crew: Crew, wait_until: Wait):
    for name, size in (("large", 3000), ("small", 10), ("middle", 200)):
        shop.model(name, name.encode() * size, graph=name)
    wait_until(lambda: crew.posts(3))
    at = crew.bench.at()
    crew.bench.database.put_request("large", None, at=at, until="9000-01-01T00:00:00.000Z")
    crew.look()
    with crew.working():
        wait_until(lambda: len(crew.ended()) == 3)
    assert next(model for model, _ in crew.ended()) == "large"
    assert crew.trouble == []


def test_a_fault_of_ours_fails_the_entry_once_and_the_next_is_built(
    shop, crew: Crew, wait_until: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.model("a", b"a", graph="a")
    shop.model("b", b"bb", graph="b")
    real, tried = worker_module.process_job, []

    def faulty(bench: Any, job: Any) -> Any:
        tried.append(job.model)
        if job.model == "a":
            raise ValueError("not thought of")
        return real(bench, job)

    monkeypatch.setattr(worker_module, "process_job", faulty)
    wait_until(lambda: crew.posts(2))
    with crew.working():
        wait_until(lambda: len(crew.ended()) == 2)
        crew.look()
    assert sorted(crew.ended()) == [("a", "failed"), ("b", "warm")]
    assert tried == ["a", "b"]
    entry = shop.entry("a")
    assert entry.code == "internal" and "not thought of" in entry.reason
    assert entry.next_try_at is not None


def test_an_entry_that_was_given_to_somebody_else_is_left_to_them(
    shop, crew: Crew, wait_until: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.model("m")
    real = worker_module.process_job
    stolen = threading.Event()

    def robbed(bench: Any, job: Any) -> Any:
        if not stolen.is_set():
            bench.database.release_all(bench.at())
            stolen.set()
        return real(bench, job)

    monkeypatch.setattr(worker_module, "process_job", robbed)
    wait_until(lambda: crew.posts(1))
    with crew.working():
        wait_until(stolen.is_set)
        wait_until(lambda: crew.board.jobs() == ())
        assert crew.ended() == []
        crew.look()  # queued again, so the next look finds it
        wait_until(lambda: crew.ended() == [("m", "warm")])
