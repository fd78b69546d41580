"""A real service under everything at once for twenty minutes: what it takes must stay flat.

``python -m pytest -m nightly tests/soak`` runs it. ``PREWARM_SOAK_S`` shortens it for trying, and
``PREWARM_SOAK_RESULT`` names a file for what was seen.

Checkpoints arrive in pieces, change, move and leave; hooks ask from the directory, the Unix socket
and over TCP; deployments wait, report and go away; children are killed; bundles are damaged; an
operator looks, retries and keeps house. The service began with a history that fills its bounds,
as one does that has run for long.
"""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from ..bench.machine import machine
from ..shop import open_shop
from .asking import Asking
from .flat import courses
from .history import long_history
from .registry import BULK_BYTES, Registry
from .sampling import TOLERANCES, sample
from .service import Service

# Read here: a test sees no variable of prewarm's.
SOAK_S = float(os.environ.get("PREWARM_SOAK_S", "1200"))
RESULT = os.environ.get("PREWARM_SOAK_RESULT")
SAMPLE_S = 3.0
#: What becomes warm again once nothing happens any more.
REST_S = 300.0

#: Troubles that a service tells of and goes on: what is read may go or be damaged at any time.
TROUBLES = {"vanished", "changed", "corrupt"}

#: Far over what is there at a time, and under what a soak makes.
CACHE_LIMIT_BYTES = 14 * BULK_BYTES


@pytest.mark.nightly
@pytest.mark.timeout(SOAK_S + 2 * REST_S)
def test_a_long_run_under_everything_at_once_stays_flat(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    shop.declare(change=('match = "*"', 'match = "**"'))
    long_history(shop)
    config = tmp_path / "config.toml"
    config.write_text(f"cache_limit_bytes = {CACHE_LIMIT_BYTES}\n")
    port = free_port()
    environ = variables(tmp_path, config, port)
    registry = Registry(tmp_path / "registry", tmp_path / "mended", seed=1)
    damaged: set[str] = set()
    asking = [Asking(tmp_path, environ, registry, port, seed, damaged) for seed in range(3)]
    samples: list[dict[str, float]] = []
    killed: Counter[str] = Counter()

    service = Service(environ)
    try:
        service.wait_for("watching")
        process = psutil.Process(service.process.pid)
        stop = threading.Event()
        chance = random.Random(2)
        first, second, third = asking
        with at_work(
            stop,
            ("registry", 1.5, lambda: registry.step(stop)),
            ("hooks", 2.0, first.hook),
            ("readers", 1.0, second.read),
            ("deployments", 2.5, second_of(third.wait_for, third.report)),
            ("operator", 4.0, first.look),
            ("housekeeper", 25.0, second.keep_house),
            ("disk", 20.0, second.damage),
            ("reloads", 60.0, service.reload),
            ("killer", 4.0, lambda: kill_a_child(process, chance, killed)),
        ) as failed:
            ends_s = time.monotonic() + SOAK_S
            while time.monotonic() < ends_s and not failed and service.process.poll() is None:
                samples.append(sample(process, tmp_path / "state", tmp_path / "cache"))
                stop.wait(SAMPLE_S)
        assert not failed, failed[0]
        assert service.process.poll() is None, service.last(20)
        found = courses(samples, TOLERANCES)
        happened = registry.happened | sum((one.happened for one in asking), killed)
        events = {f"event {name}": count for name, count in service.counts.items()}
        tell(samples, found, happened | events)

        # Nothing happens any more, and there is room: all that is there becomes warm.
        registry.mend()
        config.write_text("cache_limit_bytes = 0\n")
        service.reload()
        at_rest = until_warm(shop, registry, first)
        rest = sample(process, tmp_path / "state", tmp_path / "cache")
        into = tmp_path / "private" / "last"
        hooked = first.prewarm("hook", at_rest[0], "--into", str(into), "--on-miss", "fail",
                               "--interpreter", interpreter())  # fmt: skip
        code = service.end()
    finally:
        service.kill()

    assert [course for course in found if not course.is_flat] == []
    assert [line for one in asking for line in one.wrong] == []
    assert not service.counts.keys() & {"worker died", "watcher died", "http died"}, events
    assert {code for code in service.troubles if code not in TROUBLES} == set(), service.last(20)
    assert (hooked.returncode, code) == (0, 0), hooked.stderr
    assert rest["children"] == 0
    left = sorted(path.name for path in (tmp_path / "state" / "work").iterdir())
    assert [name for name in left if not name.startswith("torchside-")] == []


# -- who is at work


@contextmanager
def at_work(
    stop: threading.Event, *roles: tuple[str, float, Callable[[], object]]
) -> Iterator[list[str]]:
    """Let each do its work again and again, with a pause; yields what ended one of them."""
    failed: list[str] = []

    def work(name: str, pause_s: float, role: Callable[[], object]) -> None:
        try:
            while not stop.wait(pause_s):
                role()
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=role, name=role[0]) for role in roles]
    for thread in threads:
        thread.start()
    try:
        yield failed
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def second_of(first: Callable[[], object], other: Callable[[], object]) -> Callable[[], object]:
    """Return a role that does both in turn."""

    def both() -> None:
        first()
        other()

    return both


def kill_a_child(process: psutil.Process, chance: random.Random, killed: Counter[str]) -> None:
    with suppress(psutil.Error):
        children = process.children()
        if children:
            chance.choice(children).kill()
            killed["children killed"] += 1


# -- the end


def until_warm(shop: Any, registry: Registry, operator: Asking) -> list[str]:
    """Wait until just what is there is published, and all of it is warm; return the names."""
    expected = sorted(registry.names())
    ends_s = time.monotonic() + REST_S
    while time.monotonic() < ends_s:
        operator.keep_house()
        told = operator.prewarm("status", "--json")
        assert told.returncode == 0, told.stderr
        status = {one["model"]: one for one in json.loads(told.stdout)["entries"]}
        here = {name for name, one in status.items() if one["status"] != "retired"}
        published = sorted(entry["model"] for entry in shop_manifest(shop))
        warm = {name for name in here if status[name]["status"] == "warm"}
        if sorted(here) == expected == published and warm == here:
            return expected
        time.sleep(2)
    wrong = {name: (one["status"], one["reason"]) for name, one in status.items()
             if one["status"] not in ("retired", "warm")}  # fmt: skip
    raise AssertionError(f"not at rest: {wrong}; expected {expected}, published {published}")


def shop_manifest(shop: Any) -> list[dict[str, Any]]:
    path = shop.settings.cache_dir / "manifests" / "soak.json"
    entries: list[dict[str, Any]] = json.loads(path.read_bytes())["signed"]["entries"]
    return entries


def tell(samples: list[dict[str, float]], found: Any, happened: Mapping[str, int]) -> None:
    """Print what was seen, and keep it where that is asked for."""
    for course in found:
        mark = "ok  " if course.is_flat else "GREW"
        print(f"{mark} {course.name}: {course.second_quarter:.2f} -> {course.last_quarter:.2f} "
              f"(at most {course.allowed:.2f}; peak {course.most:.2f})")  # fmt: skip
    print(dict(sorted(happened.items())))
    if RESULT:
        told = {
            "machine": machine(),
            "seconds": SOAK_S,
            "samples": len(samples),
            "compared": "medians of the second and of the last quarter",
            "courses": [
                {
                    "name": one.name, "second_quarter": round(one.second_quarter, 3),
                    "last_quarter": round(one.last_quarter, 3),
                    "allowed": round(one.allowed, 3), "peak": round(one.most, 3),
                    "flat": one.is_flat,
                }
                for one in found
            ],
            "happened": dict(sorted(happened.items())),
        }  # fmt: skip
        Path(RESULT).write_text(json.dumps(told, indent=2) + "\n")


# -- the place


def variables(place: Path, config: Path, port: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREWARM_")}
    return kept | {
        "PREWARM_CONFIG": str(config),
        "PREWARM_REGISTRY": str(place / "registry"),
        "PREWARM_CACHE_DIR": str(place / "cache"),
        "PREWARM_STATE_DIR": str(place / "state"),
        "PREWARM_BUILDER": "soak",
        "PREWARM_SETTLE_S": "0.5",
        "PREWARM_GRACE_S": "20",
        "PREWARM_LISTEN": f"127.0.0.1:{port}",
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def interpreter() -> str:
    import shlex
    import sys

    from ..shop import FAKE

    return shlex.join([sys.executable, str(FAKE)])
