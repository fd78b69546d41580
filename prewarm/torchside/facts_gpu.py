"""The part of ``facts.py`` that asks the GPU through the driver's own library.

Run by its path, as ``facts.py`` is, and only where a GPU is asked for: ctypes takes 3 ms.
"""

from __future__ import annotations

import ctypes


def gpu() -> dict[str, str | None]:
    """Ask about device 0 under CUDA_VISIBLE_DEVICES, which cuInit reads; no context is made."""
    nothing: dict[str, str | None] = dict.fromkeys(("device", "capability", "sm_count", "driver"))
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return nothing
    device = ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGet(ctypes.byref(device), 0) != 0:
        return nothing
    name = ctypes.create_string_buffer(256)
    if cuda.cuDeviceGetName(name, len(name), device) != 0:
        return nothing

    def attribute(number: int) -> str | None:
        value = ctypes.c_int()
        failed = cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        return None if failed else str(value.value)

    major, minor = attribute(75), attribute(76)
    version = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    return {
        "device": name.value.decode(errors="replace"),
        "capability": major + "." + minor if major and minor else None,
        "sm_count": attribute(16),
        "driver": _driver(version.value),
    }


def _driver(cuda_version: int) -> str | None:
    """Tell the driver's version; a sandbox without /sys only knows which CUDA it can run."""
    try:
        with open("/sys/module/nvidia/version", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return f"CUDA {cuda_version // 1000}.{cuda_version % 1000 // 10}" if cuda_version else None
