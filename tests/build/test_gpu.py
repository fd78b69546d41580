"""GPUs are listed as the driver names them; slices stand in the place of what they are cut from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from prewarm.build import gpu as module
from prewarm.build.devices import present_devices
from prewarm.build.gpu import Gpu, Listing, gpus_of_smi, list_gpus

WHOLE = "GPU-5d5ba0d6-0d6b-4c3e-9a8f-000000000000"
CUT = "GPU-5d5ba0d6-0d6b-4c3e-9a8f-000000000001"
SLICES = ("MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb")

#: As nvidia-smi prints it.
TEXT = f"""\
GPU 0: NVIDIA H200 (UUID: {WHOLE})
GPU 1: NVIDIA A100-SXM4-40GB (UUID: {CUT})
  MIG 3g.20gb     Device  0: (UUID: {SLICES[0]})
  MIG 3g.20gb     Device  1: (UUID: {SLICES[1]})
GPU 2: NVIDIA H200 (UUID: {WHOLE[:-1]}2)
"""

FOUND = (
    Gpu(WHOLE, "NVIDIA H200", 0),
    *(Gpu(uuid, "NVIDIA A100-SXM4-40GB MIG 3g.20gb", 1, is_slice=True) for uuid in SLICES),
    Gpu(WHOLE[:-1] + "2", "NVIDIA H200", 2),
)


class Driver:
    """Answers as NVML does on a machine with such GPUs, the third somebody else's."""

    class NVMLError(Exception):
        pass

    class NVMLError_NoPermission(NVMLError):  # noqa: N801
        pass

    class NVMLError_NotSupported(NVMLError):  # noqa: N801
        pass

    class NVMLError_NotFound(NVMLError):  # noqa: N801
        pass

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802
        if index == 2:
            raise self.NVMLError_NoPermission
        return [FOUND[0], "cut"][index]

    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:  # noqa: N802
        if handle != "cut":
            raise self.NVMLError_NotSupported
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, number: int) -> Gpu:  # noqa: N802
        if number > 1:
            raise self.NVMLError_NotFound
        return FOUND[1 + number]

    def nvmlDeviceGetUUID(self, handle: Gpu) -> str:  # noqa: N802
        return handle.uuid

    def nvmlDeviceGetName(self, handle: Gpu) -> bytes:  # noqa: N802
        return handle.name.encode()


def no_driver(monkeypatch: pytest.MonkeyPatch, smi: str | None) -> None:
    @contextmanager
    def absent() -> Iterator[Any]:
        raise OSError("NVML does not answer (NVML Shared Library Not Found)")
        yield

    monkeypatch.setattr(module, "nvml", absent)
    monkeypatch.setattr(module, "_smi_text", lambda: smi)


def test_nvml_and_nvidia_smi_tell_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tuple(gpus_of_smi(TEXT)) == FOUND
    assert tuple(module._by_nvml(Driver())) == FOUND[:3]
    no_driver(monkeypatch, TEXT)
    assert list_gpus() == Listing(FOUND)


def test_where_neither_answers_the_reason_is_told_and_torch_may_still_see_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    no_driver(monkeypatch, None)
    listed = list_gpus()
    assert listed.gpus == ()
    assert listed.problem == (
        "NVML does not answer (NVML Shared Library Not Found), and nvidia-smi does not run"
    )
    found = present_devices({})
    assert [(device.kind, device.gpu, device.problem) for device in found.devices] == [
        ("cpu", None, None),
        ("cuda", None, None),
    ]
    assert "no GPU can be listed: NVML does not answer" in (found.note or "")


def test_each_gpu_of_one_type_is_a_device_and_several_types_are_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    no_driver(monkeypatch, TEXT)
    chosen = present_devices({"CUDA_VISIBLE_DEVICES": ",".join(SLICES)})
    assert [device.name for device in chosen.devices] == ["cpu", *SLICES]
    assert [dict(device.variables()) for device in chosen.devices[1:]] == [
        {"CUDA_VISIBLE_DEVICES": uuid} for uuid in SLICES
    ]
    cpu, refused = present_devices({}).devices
    assert (cpu.kind, refused.kind, refused.gpu) == ("cpu", "cuda", None)
    assert refused.problem == (
        "a builder works for one type of GPU and sees 2 (NVIDIA H200, NVIDIA A100-SXM4-40GB MIG "
        f"3g.20gb); start one for each, here with CUDA_VISIBLE_DEVICES={WHOLE},{WHOLE[:-1]}2"
    )


@pytest.mark.skipif(module._smi_text() is None, reason="no NVIDIA driver here")
def test_the_driver_of_this_machine_is_understood() -> None:
    by_smi = tuple(gpus_of_smi(module._smi_text() or ""))
    assert list_gpus() == Listing(by_smi)
    assert by_smi
