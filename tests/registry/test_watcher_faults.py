"""What can end or deceive a watcher: each fault is noticed, told, and mended."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prewarm.registry import watcher

from .watching import Watching

_QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")


@pytest.fixture(autouse=True)
def _look_often(monkeypatch):
    monkeypatch.setattr(watcher, "CHECK_S", 0.1)
    monkeypatch.setattr(watcher, "IDLE_TICK_S", 0.02)
    monkeypatch.setattr(watcher, "TICK_S", 0.02)


def heard_again(watching, registry, wait_until) -> None:
    """Check that the next change is heard, and not only seen by the full look of the mending."""
    before = len(watching.sets)
    registry.write("afterwards/file")
    wait_until(
        lambda: any(registry.root / "afterwards" in (s.paths or ()) for s in watching.sets[before:])
    )


# -- threads


def end_reading(observer) -> None:
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), observer.descriptor._inotify_fd)


def end_emitting(observer) -> None:
    next(iter(observer.emitters)).stop()


def end_dispatching(observer) -> None:
    observer.stop()


@pytest.mark.parametrize("end", [end_reading, end_emitting, end_dispatching])
def test_a_thread_that_ends_is_noticed_and_everything_is_looked_at(registry, wait_until, end):
    with Watching(registry.root) as watching:
        end(watching.observer)
        registry.write("unheard")
        wait_until(lambda: "observer died" in watching.whys)
        mended = watching.sets[watching.whys.index("observer died")]
        assert mended.paths is None
        assert mended.notes == (f"watching {registry.root} ended by itself; it begins again now",)
        heard_again(watching, registry, wait_until)


def test_one_that_dies_again_and_again_is_begun_with_a_pause(registry, wait_until):
    with Watching(registry.root) as watching:
        for _ in range(2):
            before = watching.whys.count("observer died")
            end_emitting(watching.observer)
            wait_until(lambda before=before: watching.whys.count("observer died") > before)
        assert any("begins again in 1 s" in note for note in watching.notes)
        wait_until(lambda: watching.observer is not None)
        heard_again(watching, registry, wait_until)


def test_a_handler_that_raises_ends_nothing(registry, wait_until, monkeypatch):
    with Watching(registry.root) as watching:
        heard = watching.watcher._observing._heard

        def raises(paths) -> None:
            raise ValueError("a fault of the handler")

        monkeypatch.setattr(heard, "note", raises)
        noted = next(iter(next(iter(watching.observer._handlers.values()))))
        monkeypatch.setattr(noted, "_note", raises)
        registry.write("unheard")
        wait_until(lambda: "observer died" in watching.whys)
        heard_again(watching, registry, wait_until)


# -- events


def test_a_queue_that_overflows_is_a_look_at_everything(registry, wait_until):
    limit = int(_QUEUE.read_text())
    if limit > 50_000:
        pytest.skip(f"a queue of {limit} events takes too long to fill")
    with Watching(registry.root) as watching:
        with watching.observer.descriptor._lock:  # nobody reads meanwhile
            registry.write("trigger")
            (registry.root / "during").mkdir()
            for number in range(limit // 3 + 1000):
                path = registry.root / f"f{number % 7}"
                path.write_bytes(b"x")
                path.unlink()
        wait_until(lambda: "overflow" in watching.whys)
        found = watching.sets[watching.whys.index("overflow")]
        assert found.paths is None
        assert "inotify lost events" in found.notes[0]
        registry.write("during/file")
        wait_until(lambda: "during/file" in watching.told())


# -- watches that run out, in a user namespace with limits of its own

_CHILD = """
import json, sys, threading, time
from pathlib import Path
from prewarm.registry.watcher import Watcher
root, limit, kind = Path(sys.argv[1]), Path("/proc/sys/user") / sys.argv[3], sys.argv[2]
limit.write_text(sys.argv[4])
stop, sets, seen = threading.Event(), [], False
timer = threading.Timer(25, stop.set)
timer.start()
step = 0
for found in Watcher(root, rescan_s=0.5, settle_s=0.05, stop=stop, poll_s=0.05).changes():
    sets.append([found.why, found.method.kind, list(found.notes)])
    if step == 0 and kind == "later" and found.method.kind == "inotify":
        step = 1
        for number in range(9):
            (root / f"new{number}").mkdir()
    elif step <= 1 and found.method.kind == "polling":
        step = 2
        (root / "a/polled").touch()
    elif step == 2 and found.paths and root / "a/polled" in found.paths:
        step = 3
        limit.write_text("1000")
    elif step == 3 and found.method.kind == "inotify":
        stop.set()
timer.cancel()
print(json.dumps([step, sets]))
"""


@pytest.mark.parametrize(
    ("kind", "limit", "value", "told"),
    [
        ("first", "max_inotify_watches", "3", "user.max_inotify_watches = 3; 7 directories need"),
        ("later", "max_inotify_watches", "9", "user.max_inotify_watches = 9; "),
        ("first", "max_inotify_instances", "0", "no inotify instance is left to this user"),
    ],
)
def test_limits_of_the_kernel_lead_to_polling_and_back_when_they_are_raised(
    tmp_path, kind, limit, value, told
):
    for name in "abcdef":
        (tmp_path / name).mkdir()
    done = subprocess.run(
        ["unshare", "-Ur", sys.executable, "-c", _CHILD, str(tmp_path), kind, limit, value],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "unshare" in done.stderr or "max_inotify" in done.stderr:
        pytest.skip(f"no user namespace here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    step, sets = json.loads(done.stdout)
    notes = [note for _, _, notes in sets for note in notes if "polling" in note]
    assert step == 3, sets
    assert sets[-1][1] == "inotify"
    assert len(notes) == 1, "it is said once"
    assert told in notes[0]
    assert "raise it: sysctl user.max_inotify_" in notes[0]


# -- the root


def test_a_root_that_is_away_concludes_nothing_and_is_looked_at_when_back(
    registry, tmp_path, wait_until
):
    registry.bert("m")
    with Watching(registry.root) as watching:
        registry.root.rename(tmp_path / "away")
        wait_until(lambda: "away" in watching.whys)
        away = watching.sets[watching.whys.index("away")]
        assert away.paths == frozenset()
        assert not away.presence.is_there
        assert "is not there" in away.notes[0]
        (tmp_path / "away").rename(registry.root)
        wait_until(lambda: "back" in watching.whys)
        assert watching.sets[watching.whys.index("back")].paths is None
        heard_again(watching, registry, wait_until)


def test_a_root_that_is_not_there_at_the_start_is_waited_for(tmp_path, wait_until):
    with Watching(tmp_path / "later") as watching:
        assert watching.whys == ["away"]
        (tmp_path / "later").mkdir()
        wait_until(lambda: "back" in watching.whys)
        (tmp_path / "later/file").touch()
        wait_until(lambda: "file" in watching.told())


def test_a_root_that_becomes_another_directory_is_watched_anew(registry, tmp_path, wait_until):
    registry.bert("m")
    shutil.copytree(registry.root, tmp_path / "copy")
    with Watching(registry.root) as watching:
        registry.root.rename(tmp_path / "old")
        (tmp_path / "copy").rename(registry.root)
        wait_until(lambda: "back" in watching.whys)
        heard_again(watching, registry, wait_until)


def test_a_root_behind_a_link_is_followed_to_where_the_link_leads_now(tmp_path, wait_until):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    link = tmp_path / "link"
    link.symlink_to("one")
    with Watching(link) as watching:
        (tmp_path / "new").symlink_to("two")
        os.replace(tmp_path / "new", link)
        wait_until(lambda: "back" in watching.whys)
        (tmp_path / "two/file").touch()
        wait_until(lambda: any(tmp_path / "two/file" in (one.paths or ()) for one in watching.sets))


def mount(path: Path) -> None:
    argv = ["mount", "-t", "tmpfs", "-o", "size=1m", "prewarm-test", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")


def unmount(path: Path) -> None:
    subprocess.run(["umount", "-l", str(path)], check=False)


@pytest.mark.parametrize("options", [{}, {"poll": True, "poll_s": 0.05}], ids=["inotify", "poll"])
def test_a_registry_that_is_unmounted_and_comes_back(tmp_path, wait_until, options):
    root = tmp_path / "mounted"
    root.mkdir()
    mount(root)
    try:
        (root / "m").mkdir()
        with Watching(root, **options) as watching:
            unmount(root)
            wait_until(lambda: "away" in watching.whys)
            away = watching.sets[watching.whys.index("away")]
            assert away.presence.state == "unmounted"
            assert f"nothing is mounted at {root} any more" in away.notes[0]
            assert "timer" not in watching.whys
            mount(root)
            (root / "m").mkdir()
            wait_until(lambda: "back" in watching.whys)
            (root / "m/file").touch()
            wait_until(lambda: "m/file" in watching.told())
    finally:
        unmount(root)


def test_a_disk_inside_the_registry_that_goes_says_nothing_of_what_lay_on_it(registry, wait_until):
    inside = registry.root / "disk"
    inside.mkdir()
    mount(inside)
    try:
        (inside / "m").mkdir()
        with Watching(registry.root) as watching:
            unmount(inside)
            wait_until(lambda: "back" in watching.whys)
            found = watching.sets[watching.whys.index("back")]
            assert found.presence.is_there
            assert not found.presence.can_tell(inside / "m")
            assert found.presence.can_tell(registry.root / "other")
            assert any(f"nothing is mounted at {inside} any more" in note for note in found.notes)
    finally:
        unmount(inside)
