"""The GPUs of this machine, as the driver names them: whole ones and the slices of those in MIG.

Owns how they are listed, without torch and without a context on any: by NVML, else by
``nvidia-smi -L``. A GPU in MIG mode runs nothing itself, so its slices stand in its place. Which of
them a builder uses is ``gpu_choice.py``'s.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

#: A driver that is broken can hang whoever asks it.
SMI_TIMEOUT_S = 20.0

_SMI_GPU = re.compile(r"GPU (\d+): (.+) \(UUID: (GPU-[0-9a-f-]+)\)")
_SMI_SLICE = re.compile(r"MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[0-9a-f-]+)\)")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device that work can run on; ``index`` is the driver's, in the order of the bus."""

    uuid: str
    name: str
    index: int
    is_slice: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """The GPUs, or why they cannot be listed."""

    gpus: tuple[Gpu, ...]
    problem: str | None = None


def list_gpus() -> Listing:
    """List the GPUs of this machine."""
    try:
        with nvml() as library:
            return Listing(tuple(_by_nvml(library)))
    except OSError as error:
        problem = str(error)
    listed = _smi_text()
    if listed is None:
        return Listing((), f"{problem}, and nvidia-smi does not run")
    return Listing(tuple(gpus_of_smi(listed)))


@contextlib.contextmanager
def nvml() -> Iterator[Any]:
    """Yield the driver's management library.

    Raises:
        OSError: it is not there, it does not answer, or it failed while it was used.
    """
    try:
        import pynvml
    except ImportError as error:
        raise OSError("the package nvidia-ml-py is missing") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise OSError(f"NVML does not answer ({error})") from error
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        raise OSError(f"NVML failed ({error})") from error
    finally:
        pynvml.nvmlShutdown()


def gpus_of_smi(text: str) -> Iterator[Gpu]:
    """Yield the GPUs that ``nvidia-smi -L`` printed."""
    whole: Gpu | None = None
    slices = 0
    for line in text.splitlines():
        if match := _SMI_GPU.match(line.strip()):
            if whole is not None and not slices:
                yield whole
            whole, slices = Gpu(match[3], match[2], int(match[1])), 0
        elif whole is not None and (match := _SMI_SLICE.match(line.strip())):
            slices += 1
            yield Gpu(match[2], f"{whole.name} MIG {match[1]}", whole.index, is_slice=True)
    if whole is not None and not slices:
        yield whole


def _by_nvml(library: Any) -> Iterator[Gpu]:
    for index in range(library.nvmlDeviceGetCount()):
        try:
            handle = library.nvmlDeviceGetHandleByIndex(index)
        except library.NVMLError_NoPermission:
            continue  # somebody else's, in a container with some of the machine's
        slices = list(_slices(library, handle))
        if not slices:
            yield _gpu(library, handle, index)
        for one in slices:
            yield _gpu(library, one, index, is_slice=True)


def _slices(library: Any, handle: Any) -> Iterator[Any]:
    try:
        present, _ = library.nvmlDeviceGetMigMode(handle)
        most = library.nvmlDeviceGetMaxMigDeviceCount(handle) if present else 0
    except library.NVMLError_NotSupported:
        return
    for number in range(most):
        with contextlib.suppress(library.NVMLError_NotFound):
            yield library.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)


def _gpu(library: Any, handle: Any, index: int, *, is_slice: bool = False) -> Gpu:
    uuid, name = library.nvmlDeviceGetUUID(handle), library.nvmlDeviceGetName(handle)
    return Gpu(_text(uuid), _text(name), index, is_slice)


def _text(value: str | bytes) -> str:
    # Older releases of nvidia-ml-py answer with bytes.
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _smi_text() -> str | None:
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=SMI_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
