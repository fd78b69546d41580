"""Watching real directories with real inotify, and by polling; no test can pass by the timer."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from prewarm.registry import watcher
from prewarm.registry.scan import scan_registry
from prewarm.registry.scan_memory import ScanMemory
from prewarm.registry.watcher import Watcher

from .watching import Watching

METHODS = [pytest.param({}, id="inotify"), pytest.param({"poll": True, "poll_s": 0.05}, id="poll")]


@pytest.fixture(autouse=True)
def _tick_often(monkeypatch):
    monkeypatch.setattr(watcher, "IDLE_TICK_S", 0.02)
    monkeypatch.setattr(watcher, "TICK_S", 0.02)


@pytest.fixture(params=METHODS)
def watching(request, registry):
    with Watching(registry.root, **request.param) as found:
        yield found


class Scans:
    """What a scan saw at each set: the state and the aliases of every checkpoint."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.states: list[dict[str, tuple[str, tuple[str, ...]]]] = []
        self._memory = ScanMemory()

    def look(self, changes) -> None:
        found = scan_registry(self.root, settle_s=0.05, now_s=time.time(), memory=self._memory)
        self.states.append(
            {one.checkpoint.name: (one.completeness.state, one.checkpoint.aliases) for one in found}
        )

    @property
    def last(self):
        return self.states[-1]


@pytest.fixture(params=METHODS)
def scans(request, registry, minilm):
    registry.write("prewarm.toml", minilm.replace("minilm/*", "**"))
    seen = Scans(registry.root)
    with Watching(registry.root, seen.look, **request.param):
        yield seen


# -- what is told


def test_it_begins_with_a_look_at_everything_and_says_how_it_watches(watching):
    [first] = watching.sets
    assert (first.why, first.paths) == ("start", None)
    assert first.presence.is_there
    [note] = first.notes
    assert note.startswith(f"watching {watching.root} by {first.method.kind}")


def test_many_files_at_once_are_few_sets_and_none_is_lost(watching, registry, wait_until):
    names = {
        f"m{one}/v{two}/f{three}" for one in range(8) for two in range(3) for three in range(9)
    }
    for name in names:
        registry.write(name)
    wait_until(lambda: names <= watching.told())
    assert len(watching.sets) < len(names) / 3


def test_a_file_in_pieces_is_told_again_when_it_has_been_quiet(watching, registry, wait_until):
    with (registry.root / "piece").open("wb", buffering=0) as file:
        file.write(b"one")
        wait_until(lambda: "piece" in watching.settled())
        before = len(watching.sets)
        file.write(b"two")
    wait_until(lambda: any(one.why == "settled" for one in watching.sets[before:]))


def test_a_tree_that_is_moved_in_is_told_and_then_watched(watching, tmp_path, wait_until):
    (tmp_path / "new/below").mkdir(parents=True)
    (tmp_path / "new").rename(watching.root / "new")
    wait_until(lambda: "new" in watching.told())
    (watching.root / "new/below/file").touch()
    wait_until(lambda: "new/below/file" in watching.told())


def test_a_tree_that_is_moved_out_is_told(watching, registry, tmp_path, wait_until):
    registry.write("a/b/file")
    wait_until(lambda: "a/b/file" in watching.settled())
    before = len(watching.sets)
    (registry.root / "a").rename(tmp_path / "elsewhere")
    wait_until(lambda: any(registry.root / "a" in one.paths for one in watching.sets[before:]))


def test_a_tree_that_is_moved_within_is_told_at_both_ends(watching, registry, wait_until):
    registry.write("a/file")
    wait_until(lambda: "a/file" in watching.settled())
    (registry.root / "a").rename(registry.root / "b")
    wait_until(lambda: "b" in watching.told())
    registry.write("b/later")
    wait_until(lambda: "b/later" in watching.told())


def test_reading_is_no_change(registry, wait_until):
    path = registry.write("a/file", b"x")
    with Watching(registry.root) as watching:
        for _ in range(3):
            path.read_bytes()
            list(path.parent.iterdir())
        registry.write("b")
        wait_until(lambda: "b" in watching.settled())
        assert watching.told() == {".", "b"}


def test_a_file_that_grows_all_the_time_does_not_hold_back_another(registry, wait_until):
    done = threading.Event()

    def grow() -> None:
        with (registry.root / "growing").open("wb", buffering=0) as file:
            while not done.wait(0.01):
                file.write(b"x")

    thread = threading.Thread(target=grow)
    with Watching(registry.root, settle_s=0.3) as watching:
        thread.start()
        try:
            wait_until(lambda: "growing" in watching.told())
            registry.write("whole")
            wait_until(lambda: "whole" in watching.settled())
            assert "growing" not in watching.settled()
        finally:
            done.set()
            thread.join()


def test_everything_is_looked_at_on_a_timer(registry, wait_until):
    with Watching(registry.root, rescan_s=0.05) as watching:
        wait_until(lambda: watching.whys.count("timer") >= 3)
        assert all(one.paths is None for one in watching.sets)


def test_a_look_that_takes_long_is_made_less_often(registry):
    slow = Watcher(registry.root, rescan_s=10.0, settle_s=0.0, stop=threading.Event())
    due = [slow._is_full_due(now_s) for now_s in (9.0, 10.0)]
    for took_s, times in ((0.001, (9.0, 10.0)), (0.1, (39.0, 40.0)), (100.0, (99.0, 100.0))):
        slow._plan(0.0, took_s)
        due += [slow._is_full_due(now_s) for now_s in times]
    assert due == [False, True] * 4


# -- what a scan makes of it


def test_a_checkpoint_is_complete_once_its_missing_shard_arrives(
    scans, registry, safetensors, wait_until
):
    part = safetensors({"w": ("F32", [4])})
    registry.write("m/config.json", "{}")
    registry.write("m/model-00001-of-00002.safetensors", part)
    wait_until(lambda: scans.last.get("m", ("",))[0] == "broken")
    registry.write("m/model-00002-of-00002.safetensors", part)
    wait_until(lambda: scans.last["m"][0] == "complete")


def test_a_checkpoint_in_pieces_is_never_complete_before_its_end(scans, registry, wait_until):
    whole = (registry.bert("whole") / "model.safetensors").read_bytes()
    registry.write("m/config.json", "{}")
    with (registry.root / "m/model.safetensors").open("wb", buffering=0) as file:
        for at in range(0, len(whole), len(whole) // 3):
            seen = len(scans.states)
            file.write(whole[at : at + len(whole) // 3])
            if at + len(whole) // 3 < len(whole):
                wait_until(lambda seen=seen: len(scans.states) > seen)
                assert not any(one.get("m", ("",))[0] == "complete" for one in scans.states)
    wait_until(lambda: scans.last.get("m", ("",))[0] == "complete")


def test_a_deleted_checkpoint_is_missed(scans, registry, wait_until):
    registry.bert("m")
    wait_until(lambda: scans.last.get("m", ("",))[0] == "complete")
    shutil.rmtree(registry.root / "m")
    wait_until(lambda: "m" not in scans.last)


def test_a_moved_checkpoint_is_another(scans, registry, wait_until):
    registry.bert("m")
    wait_until(lambda: scans.last.get("m", ("",))[0] == "complete")
    (registry.root / "m").rename(registry.root / "n")
    wait_until(lambda: set(scans.last) == {"n"})


def test_a_link_that_is_pointed_elsewhere_names_another(scans, registry, wait_until):
    registry.bert("m/v1")
    registry.bert("m/v2")
    registry.link("m/latest", "v1")
    wait_until(lambda: scans.last.get("m/v1") == ("complete", ("m/latest",)))
    registry.link("m/new", "v2")
    os.replace(registry.root / "m/new", registry.root / "m/latest")
    wait_until(
        lambda: (
            (scans.last["m/v1"], scans.last["m/v2"])
            == (("complete", ()), ("complete", ("m/latest",)))
        )
    )


def test_a_link_into_a_hidden_store_is_followed_when_the_store_changes(scans, registry, wait_until):
    registry.bert(".store/1")
    registry.link("m", ".store/1")
    wait_until(lambda: scans.last.get("m", ("",))[0] == "complete")
    os.truncate(registry.root / ".store/1/model.safetensors", 9)
    wait_until(lambda: scans.last["m"][0] == "broken")


# -- a look that raises


def test_a_look_that_raises_ends_no_watching(registry, wait_until):
    told = []

    def look(changes) -> None:
        told.append(changes.why)
        raise ValueError("a fault of the look")

    def forgiving(changes) -> None:
        with pytest.raises(ValueError, match="a fault"):
            look(changes)

    with Watching(registry.root, forgiving) as watching:
        registry.write("a")
        wait_until(lambda: "a" in watching.settled())
        registry.write("b")
        wait_until(lambda: "b" in watching.settled())
    assert len(told) == len(watching.sets)


def test_it_ends_with_its_threads_when_the_loop_is_left(registry):
    before = threading.active_count()
    left = Watcher(registry.root, rescan_s=1, settle_s=0, stop=threading.Event())
    changes = left.changes()
    next(changes)
    assert threading.active_count() > before
    changes.close()
    assert threading.active_count() == before
