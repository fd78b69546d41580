"""The figures of the watching.

``latency``: from the last write of a safetensors checkpoint to its job, through a real service with
the fake child; the quiet time is part of it. ``idle``: the service with 1,000 checkpoints of 10
files, a minute after it has come to rest. ``rescan``: one full look at 10,000 checkpoints of 10
files, by a process that has looked before.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figure import Figure
from shop import DECLARATION, FAKE

from prewarm.registry.scan import scan_registry
from prewarm.registry.scan_memory import ScanMemory

ROUNDS = 5
QUIET_S = 1.0
IDLE_S = 60.0
FILES = 10
SERVE = [sys.executable, "-m", "prewarm.cli", "serve", "--log-format", "json"]


# -- registries


def weights() -> bytes:
    header: dict[str, object] = {}
    for number in range(20):
        offsets = [64 * number, 64 * number + 64]
        header[f"layer.{number}"] = {"dtype": "F32", "shape": [4, 4], "data_offsets": offsets}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(64 * 20)


def write_checkpoint(directory: Path) -> Path:
    """Write a checkpoint of ten files; return the one that was written last."""
    directory.mkdir(parents=True)
    (directory / "behaviour.json").write_text("{}")
    (directory / "config.json").write_text('{"model_type": "bert"}')
    for number in range(FILES - 3):
        (directory / f"extra-{number}.txt").write_text("x")
    last = directory / "model.safetensors"
    last.write_bytes(weights())
    return last


def write_registry(root: Path, count: int, *, match: str = "**") -> Path:
    registry = root / "registry"
    registry.mkdir()
    text = DECLARATION.format(
        python=json.dumps(sys.executable), fake=json.dumps(str(FAKE)), timeout_s=60
    )
    (registry / "prewarm.toml").write_text(text.replace('match = "*"', f'match = "{match}"'))
    for number in range(count):
        write_checkpoint(registry / f"model-{number // 10:04}" / f"v{number % 10}")
    return registry


# -- the service


class Service:
    """One ``prewarm serve`` and the events that it logs, each with the time when it was read."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.events: list[tuple[float, dict[str, object]]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            event = json.loads(line) if line.startswith("{") else {"event": "text", "detail": line}
            self.events.append((time.monotonic(), event))

    def wait_for(self, event: str, model: str | None = None, *, limit_s: float = 120.0) -> float:
        """Return when an event was logged."""
        ends_s = time.monotonic() + limit_s
        while time.monotonic() < ends_s:
            for at_s, found in list(self.events):
                if found["event"] == event and model in (None, found.get("model")):
                    return at_s
            if self.process.poll() is not None:
                break
            time.sleep(0.005)
        raise SystemExit(f"no {event} of {model}: {[found for _, found in self.events[-5:]]}")

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024 / 1e6
        raise SystemExit("the service has no resident memory")


@contextmanager
def serving(root: Path, registry: Path) -> Iterator[Service]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PREWARM_")}
    environ |= {
        "PREWARM_REGISTRY": str(registry),
        "PREWARM_CACHE_DIR": str(root / "cache"),
        "PREWARM_STATE_DIR": str(root / "state"),
        "PREWARM_BUILDER": "bench",
        "PREWARM_SETTLE_S": f"{QUIET_S:g}",
    }
    process = subprocess.Popen(SERVE, env=environ, stderr=subprocess.PIPE, text=True)
    service = Service(process)
    try:
        service.wait_for("watching")
        yield service
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


# -- figures


def latency_figures(root: Path) -> list[Figure]:
    registry = write_registry(root, 0)
    took = []
    with serving(root, registry) as service:
        for number in range(ROUNDS):
            write_checkpoint(registry / f"m{number}")
            written_s = time.monotonic()
            took.append(service.wait_for("begin", f"m{number}") - written_s)
            service.wait_for("warm", f"m{number}")
    name = f"last write of a checkpoint to its job, beyond {QUIET_S:g} s of quiet, slowest"
    return [Figure(name, max(took) - QUIET_S, 1.0, "s")]


def idle_figures(root: Path) -> list[Figure]:
    """Nothing is declared for the thousand but one: what is measured is watching, not building."""
    registry = write_registry(root, 1_000, match="model-0000/v0")
    with serving(root, registry) as service:
        service.wait_for("warm", "model-0000/v0")
        time.sleep(10)
        before_s, began_s = service.cpu_s(), time.monotonic()
        time.sleep(IDLE_S)
        share = (service.cpu_s() - before_s) / (time.monotonic() - began_s)
        resident = service.resident_mb()
    return [
        Figure("idle with 1,000 checkpoints of 10 files, resident", resident, 90.0, "MB"),
        Figure("idle with 1,000 checkpoints of 10 files, of one core", 100 * share, 0.3, "%"),
    ]


def rescan_figures(root: Path) -> list[Figure]:
    registry = write_registry(root, 10_000)
    memory = ScanMemory()
    took = []
    for _ in range(3):
        began_s = time.monotonic()
        found = scan_registry(registry, settle_s=0.0, now_s=time.time() + 60, memory=memory)
        took.append(time.monotonic() - began_s)
        assert len(found) == 10_000
    return [
        Figure("first scan of 10,000 checkpoints of 10 files", took[0], 20.0, "s"),
        Figure("full rescan of 10,000 checkpoints of 10 files", max(took[1:]), 5.0, "s"),
    ]
