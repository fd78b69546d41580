"""A worker takes what is best first, under a lease, and no fault of ours makes it go round."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prewarm.build import worker as worker_module
from prewarm.build.bench import Bench
from prewarm.build.crew import Crew as Workers
from prewarm.build.device import Guard
from prewarm.build.devices import Devices
from prewarm.build.holdups import Holdups
from prewarm.build.job_board import JobBoard
from prewarm.build.look import Looker
from prewarm.build.place import CPU
from prewarm.build.run import open_run
from prewarm.build.step import Step
from prewarm.build.worker import Worker
from prewarm.errors import NotWritable
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
        holdups = Holdups(["cpu"], lambda error: self.trouble.append(str(error)))
        guard = Guard(self.bench.place.device)
        one = Worker("cpu", self.bench, self.board, guard=guard, holdups=holdups)
        one.start()
        try:
            yield
        finally:
            self.bench.stop.set()
            self.board.ring()
            assert one.join(30)

    @contextmanager
    def all_working(self, *, cpu_workers: int = 1) -> Iterator[None]:
        """Let all work that a service has for the CPU."""
        bench = replace(self.bench, settings=replace(self.bench.settings, cpu_workers=cpu_workers))
        told = self.trouble
        crew = Workers(
            bench, self.board, lambda error: told.append(str(error)), devices=Devices((CPU,))
        )
        crew.start()
        try:
            yield
        finally:
            self.bench.stop.set()
            self.board.ring()
            crew.join(30)
            assert len(crew.tend()) == cpu_workers + 1, "they ended"

    def proven(self) -> set[str]:
        return {model for model, outcome in self.ended() if outcome == "warm"}


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


def test_a_manifest_that_could_not_be_written_is_written_later_without_news(
    shop, crew: Crew, wait_until: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.model("m")
    real, tried = worker_module.publish, []

    def refused(bench: Any) -> Any:
        tried.append(len(crew.ended()))
        if len(tried) < 3:
            raise NotWritable("told by the test")
        return real(bench)

    monkeypatch.setattr(worker_module, "publish", refused)
    monkeypatch.setattr(worker_module, "TROUBLE_S", 0.01)
    wait_until(lambda: crew.posts(1))
    with crew.working():
        wait_until(lambda: crew.ended() == [("m", "warm")])
    assert tried == [0, 0, 0], "nothing is told before it is published"
    assert [entry["model"] for entry in shop.manifest()["entries"]] == ["m"]


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


# -- several at once


def own_declaration(shop, name: str, rows: int) -> Path:
    """Let a model have calls, and so a bundle, of its own."""
    directory = shop.root / "registry" / name
    text = (shop.root / "registry" / "prewarm.toml").read_text()
    (directory / "prewarm.toml").write_text(text.replace("batch = [3]", f"batch = [{rows}]"))
    return directory


def clock(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def assert_nothing_is_timed_beside_something_else(file: Path) -> None:
    lines = clock(file)
    timed = [line for line in lines if "timed" in line]
    ticks = [line for line in lines if "tick" in line]
    assert len({line["pid"] for line in lines}) > 1
    for line in timed:
        began_s, ended_s = line["timed"]
        beside = [
            other
            for other in ticks
            if other["pid"] != line["pid"] and began_s <= other["tick"] <= ended_s
        ]
        assert beside == []
        overlapping = [
            other
            for other in timed
            if other is not line and other["timed"][0] < ended_s and began_s < other["timed"][1]
        ]
        assert overlapping == []


def test_what_needs_a_build_gets_one_though_a_look_came_while_it_was_proven(
    shop, crew: Crew, wait_until: Wait, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    shop.model("first", b"1", graph="shared")
    wait_until(lambda: crew.posts(1))
    with crew.all_working():
        wait_until(lambda: crew.proven() == {"first"})
        shop.model("other", b"2", graph="other", marks=str(marks), hold=["prove-full"])
        wait_until(lambda: crew.posts(1))
        wait_until((marks / "prove-full.reached").exists)
        crew.look()
        assert crew.board.jobs() == ()
        (marks / "prove-full.go").touch()
        wait_until(lambda: crew.proven() == {"first", "other"})


def test_a_look_that_began_before_a_job_was_given_back_does_not_take_it_down(
    shop, crew: Crew, wait_until: Wait
) -> None:
    shop.model("m")
    wait_until(lambda: crew.posts(1))
    (job,) = crew.board.jobs()
    crew.board.post(())  # a look that sees it under work
    crew.board.put_back(job)
    crew.board.post(())  # one that had begun before it was given back
    assert crew.board.jobs() == (job,)
    crew.board.post(())  # one that began since: it is gone
    assert crew.board.jobs() == ()


def test_proofs_do_not_wait_behind_a_long_build_which_holds_still_for_them(
    shop, crew: Crew, wait_until: Wait, tmp_path: Path
) -> None:
    marks, file = tmp_path / "marks", tmp_path / "clock"
    marks.mkdir()
    shop.model("first", b"1", graph="shared")
    wait_until(lambda: crew.posts(1))
    with crew.all_working():
        wait_until(lambda: crew.proven() == {"first"})
        shop.model(
            "long", b"long", graph="long", clock=str(file), rounds=3,
            marks=str(marks), hold=["compile-begun"],
        )  # fmt: skip
        own_declaration(shop, "long", 4)
        wait_until(lambda: crew.posts(1))
        wait_until((marks / "compile-begun.reached").exists)
        for name in ("tune-1", "tune-2"):
            shop.model(name, name.encode(), graph="shared", clock=str(file))
        wait_until(lambda: crew.posts(2))
        wait_until(lambda: crew.proven() == {"first", "tune-1", "tune-2"})
        assert shop.entry("long").status == "building"
        assert shop.builds("tune-1") == []
        ticks = len(clock(file))
        wait_until(lambda: len(clock(file)) > ticks)
        (marks / "compile-begun.go").touch()
        wait_until(lambda: "long" in crew.proven())
    assert crew.trouble == []
    assert_nothing_is_timed_beside_something_else(file)
    assert sum("timed" in line for line in clock(file)) >= 2 + 3
    [*_, call] = [c for s in shop.entry("long").record["shape_sets"] for c in s["calls"]]
    ticked = [line["tick"] for line in clock(file) if "tick" in line]
    assert 0 < call["cold_s"] < max(ticked) - min(ticked), "less what it held still"


def test_a_proof_that_finds_another_graph_leaves_the_build_to_whoever_builds(
    shop, crew: Crew, wait_until: Wait, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    shop.model("first", b"1", graph="shared")
    wait_until(lambda: crew.posts(1))
    with crew.all_working():
        wait_until(lambda: crew.proven() == {"first"})
        shop.model("long", b"long", graph="long", marks=str(marks), hold=["compile-begun"])
        own_declaration(shop, "long", 4)
        wait_until(lambda: crew.posts(1))
        wait_until((marks / "compile-begun.reached").exists)
        shop.model("other", b"other", graph="depends on weights")
        wait_until(lambda: crew.posts(1))
        wait_until(lambda: shop.known("other") and shop.entry("other").code == "needs_build")
        assert shop.entry("other").status == "queued"
        assert "waits for a build of its own: " in shop.entry("other").reason
        assert shop.builds("other") == []
        (marks / "compile-begun.go").touch()
        wait_until(lambda: crew.proven() == {"first", "long", "other"})
    assert shop.entry("other").own_graph
    assert crew.trouble == []


def test_two_builds_at_once_take_turns_for_what_they_time(
    shop, crew: Crew, wait_until: Wait, tmp_path: Path
) -> None:
    marks, file = tmp_path / "marks", tmp_path / "clock"
    for number, name in enumerate(("one", "two"), 4):
        (marks / name).mkdir(parents=True)
        shop.model(
            name, name.encode(), graph=name, clock=str(file), rounds=10,
            marks=str(marks / name), hold=["compile-begun"],
        )  # fmt: skip
        own_declaration(shop, name, number)
    wait_until(lambda: crew.posts(2))
    with crew.all_working(cpu_workers=2):
        wait_until((marks / "one" / "compile-begun.reached").exists)
        wait_until((marks / "two" / "compile-begun.reached").exists)
        for name in ("one", "two"):
            (marks / name / "compile-begun.go").touch()
        wait_until(lambda: crew.proven() == {"one", "two"})
    assert crew.trouble == []
    assert_nothing_is_timed_beside_something_else(file)
    assert sum("timed" in line for line in clock(file)) >= 2 * 10
    for name in ("one", "two"):
        record = shop.entry(name).record
        assert {c["cold_s"] for s in record["shape_sets"] for c in s["calls"]} == {None}
