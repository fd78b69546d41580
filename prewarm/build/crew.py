"""The crew of a service: the workers of each device that is here.

Owns how many workers each device has, and what they share. A device has workers
that build (one on a GPU, ``cpu_workers`` on the CPU) and one more that only makes proofs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from prewarm.build.bench import Bench
from prewarm.build.cgroup import Cgroups
from prewarm.build.device import Device, Guard
from prewarm.build.devices import Devices, present_devices
from prewarm.build.holdups import Holdups
from prewarm.build.job_board import JobBoard
from prewarm.build.place import Place
from prewarm.build.turns import Turns
from prewarm.build.worker import Worker
from prewarm.config import Settings
from prewarm.errors import PrewarmError


class Crew:
    """All workers of a service."""

    def __init__(
        self,
        bench: Bench,
        board: JobBoard,
        trouble: Callable[[PrewarmError], None],
        *,
        cgroups: Cgroups | None = None,
        devices: Devices | None = None,
    ) -> None:
        self.devices = devices or present_devices(os.environ)
        self._board = board
        self._settings = bench.settings
        places = list(_places(self.devices.devices, bench.settings.cpu_workers, cgroups))
        guards = {device: Guard(device) for device in self.devices.devices}
        holdups = {
            kind: Holdups(
                (
                    name
                    for name, place in places
                    if place.device.kind == kind and not place.proofs_only
                ),
                trouble,
            )
            for kind in {device.kind for device in self.devices.devices}
        }
        self._makers = [
            _Maker(
                name,
                replace(bench, place=place),
                guards[place.device],
                holdups[place.device.kind],
            )
            for name, place in places
        ]
        self._workers = [self._new(maker) for maker in self._makers]

    def start(self) -> None:
        """Begin to work."""
        for worker in self._workers:
            worker.start()

    def take(self, settings: Settings) -> None:
        """Let all work with other settings from the next entry on."""
        self._settings = settings
        for worker in self._workers:
            worker.take(settings)

    def tend(self) -> tuple[str, ...]:
        """Start anew the workers that died; return their names."""
        died = []
        for number, worker in enumerate(self._workers):
            if not worker.is_alive:
                died.append(worker.name)
                self._workers[number] = self._new(self._makers[number])
                self._workers[number].start()
        return tuple(died)

    def join(self, timeout_s: float) -> None:
        """Wait for the end of all, at most this long altogether."""
        ends_s = time.monotonic() + timeout_s
        for worker in self._workers:
            worker.join(max(0.1, ends_s - time.monotonic()))

    def _new(self, maker: _Maker) -> Worker:
        bench = replace(maker.bench, settings=self._settings)
        return Worker(maker.name, bench, self._board, guard=maker.guard, holdups=maker.holdups)


@dataclass(frozen=True, slots=True)
class _Maker:
    name: str
    bench: Bench
    guard: Guard
    holdups: Holdups


def _places(
    devices: tuple[Device, ...], cpu_workers: int, cgroups: Cgroups | None
) -> Iterator[tuple[str, Place]]:
    for device in devices:
        builds = cpu_workers if device.kind == "cpu" else 1
        place = Place(device, Turns(), cgroups, builds)
        for number in range(builds):
            yield device.name + (f" {number + 1}" if number else ""), place
        yield f"{device.name} proofs", replace(place, proofs_only=True)
