"""How much of a GPU others use: its memory that is taken, and how busy it was just now, by NVML.

Asked only while no child of this builder runs there, so whatever is seen is somebody else's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prewarm.build.gpu import Gpu, nvml


@dataclass(frozen=True, slots=True)
class Load:
    """What NVML tells of a GPU; ``busy_percent`` is None for a slice, of which none is told."""

    used_bytes: int
    total_bytes: int
    busy_percent: int | None

    @property
    def used_percent(self) -> float:
        """The share of the memory that is taken."""
        return 100 * self.used_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def free_bytes(self) -> int:
        """The memory that nobody has."""
        return self.total_bytes - self.used_bytes


def read_load(gpu: Gpu) -> Load | None:
    """Return the present load of a GPU; None where it cannot be told."""
    try:
        with nvml() as library:
            handle = library.nvmlDeviceGetHandleByUUID(gpu.uuid)
            memory = _memory(library, handle)
            return Load(int(memory.used), int(memory.total), _busy_percent(library, handle))
    except OSError:
        return None


def why_busy(gpu: Gpu, load: Load | None, *, limit_percent: float) -> str | None:
    """Say why no build should begin on a GPU now; None if it may, or if nothing can be told."""
    if load is None:
        return None
    found = None
    if load.used_percent > limit_percent:
        found = (
            f"others hold {load.used_bytes / 2**30:.0f} of its {load.total_bytes / 2**30:.0f} GiB"
        )
    elif load.busy_percent is not None and load.busy_percent > limit_percent:
        found = "others keep it busy"
    if found is None:
        return None
    return (
        f"waits for {gpu.name} {gpu.uuid}: {found}, and a build begins at {limit_percent:g}% or "
        "less (gpu_busy_percent); end them, or name other GPUs in CUDA_VISIBLE_DEVICES"
    )


def _memory(library: Any, handle: Any) -> Any:
    try:
        # The first version counts what the driver itself reserves as used.
        return library.nvmlDeviceGetMemoryInfo(handle, version=library.nvmlMemory_v2)
    except (library.NVMLError, TypeError, AttributeError):
        return library.nvmlDeviceGetMemoryInfo(handle)


def _busy_percent(library: Any, handle: Any) -> int | None:
    try:
        return int(library.nvmlDeviceGetUtilizationRates(handle).gpu)
    except library.NVMLError:
        return None
