"""Where the jobs of a foreground run work: the CPU, or the first GPU that is free.

A GPU that others use, or that another builder of this host works on, is waited for; that is told.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from prewarm.build.bench import Bench
from prewarm.build.device import Device, Guard
from prewarm.build.devices import Devices, present_devices
from prewarm.build.interrupted import Interrupted
from prewarm.build.job import Job
from prewarm.build.place import Place

#: How often it is looked whether a GPU is free.
LOOK_S = 2.0


class Foreground:
    """The devices of one run, listed when the first job needs one."""

    def __init__(self, bench: Bench, devices: Devices | None = None) -> None:
        self._bench = bench
        self._devices = devices
        self._guards: list[tuple[Device, Guard]] | None = None

    @contextmanager
    def bench_for(self, job: Job) -> Iterator[Bench]:
        """Yield the bench with a place for a job, which is its own while entered.

        Raises:
            DeviceWaits: nothing is built on this kind of device here.
            Interrupted: the run was to stop while it waited.
        """
        kind = job.declaration.model.device
        if kind == "cpu":
            yield self._bench
            return
        device, guard = self._free(job)
        try:
            yield replace(self._bench, place=Place(device))
        finally:
            guard.leave()

    def _free(self, job: Job) -> tuple[Device, Guard]:
        told = None
        while True:
            reasons = []
            for device, guard in self._gpus():
                against = guard.enter(busy_percent=self._bench.settings.gpu_busy_percent)
                if against is None:
                    for _, other in self._gpus():
                        if other is not guard:
                            other.step_aside()
                    return device, guard
                if against.code == "gpu_choice":
                    raise against
                reasons.append(str(against))
            if reasons != told:
                self._bench.say(job, "wait", "; ".join(reasons))
                told = reasons
            if self._bench.stop.wait(LOOK_S):
                raise Interrupted("interrupted; the work is queued again")

    def _gpus(self) -> list[tuple[Device, Guard]]:
        if self._guards is None:
            devices = (self._devices or present_devices(os.environ)).devices
            self._guards = [(one, Guard(one)) for one in devices if one.kind != "cpu"]
        return self._guards
