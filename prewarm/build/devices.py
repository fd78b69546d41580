"""The devices that a builder works on: the CPU, and the GPUs that are listed and chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prewarm.build.device import Device
from prewarm.build.gpu import list_gpus
from prewarm.build.gpu_choice import choose_gpus


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices to build on, and what is to be told of them."""

    devices: tuple[Device, ...]
    note: str | None = None


def present_devices(environ: Mapping[str, str]) -> Devices:
    """Return the CPU and the GPUs that a service with these variables works on.

    A GPU that cannot be listed may still be there for torch, so it has a device without a name.
    """
    cpu = Device("cpu")
    listing = list_gpus()
    if listing.problem is not None:
        note = (
            f"no GPU can be listed: {listing.problem}; what declares one is built on the first "
            "that torch sees, one at a time, whatever else runs there"
        )
        return Devices((cpu, Device("cuda")), note)
    choice = choose_gpus(listing.gpus, environ)
    if not choice.gpus and choice.problem is not None:
        return Devices((cpu, Device("cuda", problem=choice.problem)), choice.problem)
    gpus = tuple(Device("cuda", gpu) for gpu in choice.gpus)
    return Devices((cpu, *(gpus or (Device("cuda"),))), choice.problem)
