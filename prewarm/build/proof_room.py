"""Memory for a proof beside a build that holds still: its weights stay where they are.

Owns how much that is. A proof that fails for want of it would be called failed, so where there is
too little, it waits for the end of the build.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import psutil

from prewarm.build.device import Device
from prewarm.build.gpu_load import read_load
from prewarm.build.job import Job

#: A proof takes what the build took, less its candidates; and the runtime of a process.
RESERVE_BYTES = 1 << 30
#: Of a checkpoint whose build was another builder's: its weights, once more as they are loaded.
COPIES = 2


def with_room(
    jobs: Iterable[Job], device: Device, *, peaks: Mapping[str, int | None]
) -> tuple[Job, ...]:
    """Return the jobs whose proof has memory on the device now; all of them where none is told."""
    free_bytes = _free_bytes(device)
    if free_bytes is None:
        return tuple(jobs)
    return tuple(job for job in jobs if needed_bytes(job, job.keys, peaks) <= free_bytes)


def needed_bytes(job: Job, keys: Collection[str], peaks: Mapping[str, int | None]) -> int:
    """Return the memory that a job's proof may take; ``peaks`` are those of builds, by key."""
    known = [peak for key, peak in peaks.items() if key in keys and peak is not None]
    return RESERVE_BYTES + max(known, default=COPIES * job.checkpoint.size_bytes)


def _free_bytes(device: Device) -> int | None:
    if device.kind == "cpu":
        return int(psutil.virtual_memory().available)
    load = None if device.gpu is None else read_load(device.gpu)
    return None if load is None else load.free_bytes
