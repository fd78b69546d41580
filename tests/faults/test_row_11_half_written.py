"""Row 11, half-written checkpoints and lost events: the disk decides; events say where to look.

Upstream: watchdog #586, #654, #504, #793; triton-server #356.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from watchdog.events import FileCreatedEvent, FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from prewarm.registry import watch_method, watcher
from prewarm.registry.watcher import Changes
from prewarm.store.status import Status

from ..registry.conftest import safetensors_bytes
from ..registry.watching import Watching
from ..shop import Shop

WEIGHTS = safetensors_bytes({"w": ("F32", [64, 64])})


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "CHECK_S", 0.1)
    monkeypatch.setattr(watcher, "IDLE_TICK_S", 0.02)


@contextmanager
def watched(shop: Shop, **options: float) -> Iterator[Watching]:
    """Watch the registry and scan it at each set, as the daemon does."""

    def look(changes: Changes) -> None:
        if changes.presence.is_there:
            shop.scan()

    with Watching(shop.root / "registry", look, **options) as found:
        yield found


def is_warm(shop: Shop, model: str) -> bool:
    return shop.known(model) and shop.entry(model).status is Status.WARM


class Created(FileSystemEventHandler):
    """What one would write first: work that begins when a file is created."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.told = threading.Event()

    def on_created(self, event: FileSystemEvent) -> None:
        if isinstance(event, FileCreatedEvent) and str(event.src_path).endswith(".safetensors"):
            self.sizes.append(Path(str(event.src_path)).stat().st_size)
            self.told.set()


def test_a_checkpoint_is_one_job_when_its_copy_has_ended_and_none_before(
    shop, fault_row, wait_until
) -> None:
    half = len(WEIGHTS) // 2
    created = Created()
    alone = Observer()
    alone.schedule(created, str(shop.root / "registry"), recursive=True)
    alone.start()
    with watched(shop) as watching:
        directory = shop.model("m")
        with (directory / "w.safetensors").open("wb", buffering=0) as copy:
            copy.write(WEIGHTS[:half])
            assert created.told.wait(30)
            wait_until(lambda: "m/w.safetensors" in watching.settled())
            wait_until(lambda: shop.known("m") and shop.entry("m").status is Status.FAILED)
            waiting = shop.entry("m")
            assert shop.builds("m") == []
            copy.write(WEIGHTS[half:])
        wait_until(lambda: is_warm(shop, "m"))
    alone.stop()
    alone.join()
    assert shop.builds("m") == ["compiled"]
    assert waiting.code == "bad_checkpoint"
    assert f"{half:,} of {len(WEIGHTS):,} bytes are there" in waiting.reason
    assert max(created.sizes) <= half
    fault_row(
        row=11,
        case="a copy that pauses half-way",
        alone=None,
        said=f"{waiting.status.value}, {waiting.code}: {waiting.reason}; built once, when whole",
    )


def test_a_checkpoint_waits_for_the_shards_that_its_index_names(
    shop, fault_row, wait_until
) -> None:
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    with watched(shop):
        directory = shop.model("m")
        weight_map = {"a": names[0], "b": names[1]}
        index = json.dumps({"weight_map": weight_map})
        (directory / "model.safetensors.index.json").write_text(index)
        (directory / names[0]).write_bytes(WEIGHTS)
        reason = f"{names[1]} is missing"
        wait_until(lambda: shop.known("m") and reason in (shop.entry("m").reason or ""))
        waiting = shop.entry("m")
        assert shop.builds("m") == []
        (directory / names[1]).write_bytes(WEIGHTS)
        wait_until(lambda: is_warm(shop, "m"))
    assert shop.builds("m") == ["compiled"]
    said = f"{waiting.status.value}, {waiting.code}: {waiting.reason}"
    fault_row(row=11, case="a shard that comes last", alone=None, said=said)


def test_events_that_the_kernel_drops_are_made_good_by_a_full_look(
    shop, fault_row, wait_until
) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 50_000:
        pytest.skip(f"a queue of {limit} events takes too long to fill")
    scratch = shop.root / "registry" / "noise"
    scratch.mkdir()
    with watched(shop) as watching:
        with watching.observer.descriptor._lock:  # nobody reads meanwhile
            (scratch / "first").touch()
            for number in range(limit // 3 + 1000):
                path = scratch / f"f{number % 7}"
                path.write_bytes(b"x")
                path.unlink()
            shop.model("m")
        wait_until(lambda: "overflow" in watching.whys and is_warm(shop, "m"))
    [note] = [note for note in watching.notes if "lost events" in note]
    fault_row(row=11, case="a queue of events that overflows", alone=None, said=note)


def test_a_network_file_system_is_polled(shop, fault_row, wait_until, monkeypatch) -> None:
    monkeypatch.setattr(watch_method, "network_file_system", lambda path: "nfs4")
    with watched(shop, poll_s=0.05) as watching:
        shop.model("m")
        wait_until(lambda: is_warm(shop, "m"))
        [note] = [note for note in watching.notes if "polling" in note]
    assert "nfs4 does not tell what other machines write" in note
    said = note.replace("every 0.05 s", "every 5 s")
    fault_row(row=11, case="a registry on NFS, which sends no events", alone=None, said=said)


def test_an_observer_that_died_is_begun_again(shop, fault_row, wait_until) -> None:
    with watched(shop) as watching:
        next(iter(watching.observer.emitters)).stop()
        shop.model("unheard")
        wait_until(lambda: is_warm(shop, "unheard"))
        shop.model("heard", b"other weights")
        wait_until(lambda: is_warm(shop, "heard"))
        [note] = [note for note in watching.notes if "ended by itself" in note]
    fault_row(row=11, case="an observer that died of an exception", alone=None, said=note)


def test_a_registry_that_is_unmounted_retires_nothing(shop, fault_row, wait_until) -> None:
    registry = shop.root / "registry"
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "prewarm-test", str(registry)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
    try:
        shop.declare()
        shop.model("m")
        with watched(shop) as watching:
            wait_until(lambda: is_warm(shop, "m"))
            subprocess.run(["umount", "-l", str(registry)], check=True)
            wait_until(lambda: "away" in watching.whys)
            assert is_warm(shop, "m")
            [note] = [note for note in watching.notes if "nothing is mounted" in note]
            subprocess.run(mount, check=True)
            shop.declare()
            shop.model("m")
            wait_until(lambda: "back" in watching.whys)
    finally:
        subprocess.run(["umount", "-l", str(registry)], check=False)
    assert is_warm(shop, "m")
    assert shop.builds("m") == ["compiled"]
    fault_row(row=11, case="a registry whose disk is unmounted", alone=None, said=note)
