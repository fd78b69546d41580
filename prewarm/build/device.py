"""What a worker builds on: the CPU, or one GPU; and whether a build may begin there now.

A ``Guard`` is shared by all workers of a device in this builder: the first that begins takes the
GPU for the builder, the last that ends gives it to others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from prewarm.build.gpu import Gpu
from prewarm.build.gpu_choice import VARIABLE
from prewarm.build.gpu_load import read_load, why_busy
from prewarm.build.gpu_lock import GpuLock
from prewarm.errors import PrewarmError

#: For so long after our own last work, what NVML tells of a GPU may still be that work.
AFTERGLOW_S = 3.0


class DeviceWaits(PrewarmError):
    """No build may begin on a device now; the message says why."""

    code = "gpu_busy"


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a kind that declarations name; a GPU that could not be listed has no ``gpu``.

    ``problem`` is why nothing is built on this kind at all.
    """

    kind: str
    gpu: Gpu | None = None
    problem: str | None = None

    @property
    def name(self) -> str:
        """How it is called in the log, and where it is told who works."""
        return self.kind if self.gpu is None else self.gpu.uuid

    def variables(self) -> Mapping[str, str]:
        """Return the variables of a child that works on it: a GPU is its device 0."""
        return {} if self.gpu is None else {VARIABLE: self.gpu.uuid}


class Guard:
    """Lets work begin on a device, or says why not."""

    def __init__(self, device: Device, lock: GpuLock | None = None) -> None:
        self._device = device
        self._lock = lock or (GpuLock(device.gpu.uuid) if device.gpu is not None else None)
        self._own = threading.Lock()
        self._workers = 0
        self._left_s: float | None = None

    def enter(self, *, busy_percent: float) -> DeviceWaits | None:
        """Begin, unless something speaks against it; each ``enter`` that may needs a ``leave``."""
        with self._own:
            if self._device.problem is not None:
                return DeviceWaits(self._device.problem, code="gpu_choice")
            reason = self._against(busy_percent) if self._workers == 0 else None
            if reason is not None:
                return DeviceWaits(reason)
            self._workers += 1
            return None

    def leave(self) -> None:
        """End; where nobody else of this builder works on the device, others may have it."""
        with self._own:
            self._workers -= 1
            if self._workers == 0:
                self._left_s = time.monotonic()
                self._release()

    def step_aside(self) -> None:
        """Stand in nobody's way while there is nothing to do."""
        with self._own:
            if self._workers == 0:
                self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _against(self, busy_percent: float) -> str | None:
        gpu = self._device.gpu
        if gpu is None or self._lock is None:
            return None
        try:
            if not self._lock.take():
                return f"waits for {gpu.name} {gpu.uuid}: another builder of this host works on it"
        except OSError as error:
            return (
                f"waits for {gpu.name} {gpu.uuid}: it cannot be locked against other builders "
                f"({error.strerror}); allow Unix sockets (RestrictAddressFamilies=AF_UNIX)"
            )
        if self._left_s is not None and time.monotonic() - self._left_s < AFTERGLOW_S:
            return None
        reason = why_busy(gpu, read_load(gpu), limit_percent=busy_percent)
        if reason is not None:
            # Whoever builds for another cache may have a higher limit.
            self._release()
        return reason
