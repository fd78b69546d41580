"""Doctor's check of where builds run: which GPUs, how children are kept, how many compilers."""

from __future__ import annotations

from collections.abc import Mapping

from prewarm.build.cgroup import delegated_cgroup
from prewarm.build.compile_threads import VARIABLES, compile_threads, cpu_quota, present_cpus
from prewarm.build.device import Device
from prewarm.build.devices import present_devices
from prewarm.build.gpu_load import read_load, why_busy
from prewarm.cli.finding import Finding
from prewarm.config import Settings


def check_work(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    """Tell what ``prewarm serve`` with these settings and variables would build on, and how."""
    return [*_gpus(settings, environ), _children(), _compilers(settings, environ)]


def _gpus(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    found = present_devices(environ)
    listed = [device for device in found.devices if device.gpu is not None]
    if found.note is not None and not listed:
        if not any(device.problem is not None for device in found.devices):
            return [Finding("builds on", "ok", found.note)]
        return [_warning(found.note)]
    findings = [_gpu(device, settings) for device in listed]
    return findings if found.note is None else [*findings, _warning(found.note)]


def _warning(told: str) -> Finding:
    what, _, step = told.partition("; ")
    return Finding("builds on", "warn", what, step or "name GPUs that are here (nvidia-smi -L)")


def _gpu(device: Device, settings: Settings) -> Finding:
    assert device.gpu is not None
    load = read_load(device.gpu)
    told = f"{device.gpu.name} {device.gpu.uuid}"
    if load is None:
        return Finding("builds on", "ok", f"{told}; how much others use of it cannot be told")
    busy = why_busy(device.gpu, load, limit_percent=settings.gpu_busy_percent)
    if busy is not None:
        return _warning(busy)
    return Finding("builds on", "ok", f"{told}, {load.used_percent:.0f}% of its memory is taken")


def _children() -> Finding:
    found = delegated_cgroup()
    kept = (
        f"in process groups, their memory looked at: {found}"
        if isinstance(found, str)
        else f"in cgroups of their own below {found.directory}"
    )
    return Finding("children", "ok", f"{kept} (as a service: see `devices` in its log)")


def _compilers(settings: Settings, environ: Mapping[str, str]) -> Finding:
    given = [f"{name}={environ[name]}" for name in VARIABLES if name in environ]
    cpus, quota = present_cpus(), cpu_quota()
    count = compile_threads(cpus, quota, builds=settings.cpu_workers)
    told = f"{count} at once in a build on the CPU ({cpus} CPUs"
    told += ")" if quota is None else f", a quota of {quota:g})"
    return Finding("compilers", "ok", ", ".join([told, *given]))
