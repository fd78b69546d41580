"""How many compilers a build may run at once: what CPU affinity and the cgroup's quota leave.

torch counts the CPUs that a process may run on (``torch/_utils.py`` ``cpu_count``, 2.13) and knows
nothing of a quota, so that in a container with two of 64 CPUs it starts 32 compilers. Its setting
is in no cache key (``compile_threads`` in ``_cache_config_ignore_prefix`` of
``torch/_inductor/config.py``, 2.9 to 2.14), so it is set for the child that compiles alone and
stands in no manifest. The count of OpenMP threads, which is in the keys, is another matter.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from prewarm.build.own_cgroup import VERSION_2, OwnCgroup, own_cgroup

#: torch's own for its pool, and what builds C++ extensions with ninja.
VARIABLES = ("TORCHINDUCTOR_COMPILE_THREADS", "MAX_JOBS")
#: torch starts no more by itself (``decide_compile_threads`` in ``torch/_inductor/config.py``).
MOST = 32


def thread_variables(environ: Mapping[str, str], *, builds: int = 1) -> dict[str, str]:
    """Return the variables for a child that compiles, one of ``builds`` at a time.

    What the service itself was given stays.
    """
    count = compile_threads(present_cpus(), cpu_quota(), builds=builds)
    return {name: str(count) for name in VARIABLES if name not in environ}


def compile_threads(cpus: int, quota: float | None, *, builds: int = 1) -> int:
    """Return how many threads each of several builds may compile with."""
    allowed = cpus if quota is None else min(cpus, math.ceil(quota))
    return max(1, min(MOST, allowed // max(1, builds)))


def present_cpus() -> int:
    """Return how many CPUs this process may run on."""
    return len(os.sched_getaffinity(0))


def cpu_quota() -> float | None:
    """Return how many CPUs' worth of time the cgroup and those above it leave; None for all."""
    found = [
        *_quotas(own_cgroup(VERSION_2), _version_2),
        *_quotas(own_cgroup("cpu"), _version_1),
    ]
    return min(found, default=None)


def _quotas(own: OwnCgroup | None, read: Callable[[Path], float | None]) -> list[float]:
    found = [read(directory) for directory in own.upwards()] if own is not None else []
    return [quota for quota in found if quota is not None]


def _version_2(directory: Path) -> float | None:
    match _words(directory / "cpu.max"):
        case [quota, period] if quota != "max":
            return int(quota) / int(period)
    return None


def _version_1(directory: Path) -> float | None:
    quota, period = _words(directory / "cpu.cfs_quota_us"), _words(directory / "cpu.cfs_period_us")
    if not quota or not period or int(quota[0]) <= 0:
        return None
    return int(quota[0]) / int(period[0])


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []
