"""A scan works on the first GPU that is free, waits for one, and says why it cannot."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from prewarm.build import device as module
from prewarm.build import foreground
from prewarm.build.device import Device, DeviceWaits
from prewarm.build.devices import Devices
from prewarm.build.foreground import Foreground
from prewarm.build.gpu import Gpu
from prewarm.build.gpu_load import Load
from prewarm.build.gpu_lock import GpuLock
from prewarm.build.interrupted import Interrupted
from prewarm.build.place import Place

GPUS = tuple(Device("cuda", Gpu(f"GPU-{letter}", "NVIDIA H200", 0)) for letter in "ab")
JOB: Any = SimpleNamespace(declaration=SimpleNamespace(model=SimpleNamespace(device="cuda")))

Wait = Callable[[Callable[[], bool]], None]


@dataclass(frozen=True)
class Bench:
    """As much of a bench as a place needs."""

    told: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    settings: Any = field(default_factory=lambda: SimpleNamespace(gpu_busy_percent=25.0))
    place: Place = field(default_factory=Place)

    def say(self, job: Any, what: str, detail: str) -> None:
        self.told.append(f"{what}: {detail}")


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> dict[str, Load]:
    found: dict[str, Load] = {}
    prefix = f"prewarm-test-{secrets.token_hex(8)}"
    monkeypatch.setattr(module, "read_load", lambda gpu: found.get(gpu.uuid))
    monkeypatch.setattr(module, "GpuLock", lambda uuid: GpuLock(uuid, prefix))
    monkeypatch.setattr(foreground, "LOOK_S", 0.01)
    return found


def test_the_first_that_is_free_is_device_0_of_the_children(loads: dict[str, Load]) -> None:
    loads["GPU-a"] = Load(100, 100, 0)
    one, other = (Foreground(Bench(), Devices(GPUS)) for _ in range(2))
    with one.bench_for(JOB) as bench:
        assert bench.place.variables() == {"CUDA_VISIBLE_DEVICES": "GPU-b"}
        del loads["GPU-a"]
        with other.bench_for(JOB) as beside:
            assert beside.place.variables() == {"CUDA_VISIBLE_DEVICES": "GPU-a"}


def test_while_none_is_free_it_says_so_once_and_waits(
    loads: dict[str, Load], wait_until: Wait
) -> None:
    loads.update({device.name: Load(100, 100, 0) for device in GPUS})
    bench: Any = Bench()
    begun: list[str] = []

    def work() -> None:
        with Foreground(bench, Devices(GPUS)).bench_for(JOB) as own:
            begun.append(own.place.device.name)

    working = threading.Thread(target=work, daemon=True)
    working.start()
    wait_until(lambda: len(bench.told) == 1)
    assert bench.told[0].startswith("wait: waits for NVIDIA H200 GPU-a: others hold")
    assert "GPU-b" in bench.told[0]
    loads.clear()
    working.join(10)
    assert (begun, len(bench.told)) == (["GPU-a"], 1)


def test_an_interrupt_and_a_choice_that_is_refused_end_the_wait(loads: dict[str, Load]) -> None:
    loads.update({device.name: Load(100, 100, 0) for device in GPUS})
    bench: Any = Bench()
    bench.stop.set()
    with pytest.raises(Interrupted), Foreground(bench, Devices(GPUS)).bench_for(JOB):
        pass
    refused = Devices((Device("cuda", problem="sees 2 types; name one"),))
    with (
        pytest.raises(DeviceWaits, match="sees 2 types") as caught,
        Foreground(bench, refused).bench_for(JOB),
    ):
        pass
    assert caught.value.code == "gpu_choice"
