"""CUDA_VISIBLE_DEVICES is read as CUDA reads it; where that cannot be known, nothing is guessed."""

from __future__ import annotations

import pytest

from prewarm.build.gpu import Gpu
from prewarm.build.gpu_choice import choose_gpus

SAME = tuple(Gpu(f"GPU-{letter}{letter}", "NVIDIA H200", n) for n, letter in enumerate("abc"))
TYPES = (*SAME, Gpu("GPU-dd", "NVIDIA L4", 3))
SLICES = tuple(Gpu(f"MIG-{n}", "NVIDIA H200 MIG 1g.18gb", 0, is_slice=True) for n in range(2))


@pytest.mark.parametrize(
    ("named", "chosen"),
    [
        (None, "abc"),
        ("", ""),
        ("-1", ""),
        ("2,0", "ca"),
        ("GPU-b", "b"),
        ("GPU-bb, GPU-aa", "ba"),
        ("1,7,0", "b"),
        ("0,0", "a"),
        ("GPU-", ""),
        ("1,none", "b"),
    ],
)
def test_order_and_the_end_of_the_list(named: str | None, chosen: str) -> None:
    environ = {} if named is None else {"CUDA_VISIBLE_DEVICES": named}
    found = choose_gpus(SAME, environ)
    assert "".join(gpu.uuid[-1] for gpu in found.gpus) == chosen
    whole = named is None or len(chosen) == len(set(named.split(",")))
    assert (found.problem is None) == whole


def test_what_names_nothing_is_told() -> None:
    told = choose_gpus(SAME, {"CUDA_VISIBLE_DEVICES": "1,7"}).problem
    assert told == "CUDA_VISIBLE_DEVICES=1,7: 7 is no GPU of this machine"
    told = choose_gpus(SAME, {"CUDA_VISIBLE_DEVICES": "GPU-"}).problem
    assert told == "CUDA_VISIBLE_DEVICES=GPU-: GPU- is 3 GPUs of this machine"


def test_indexes_are_not_guessed_where_cuda_orders_by_speed_or_cuts() -> None:
    for present in (TYPES, SLICES):
        refused = choose_gpus(present, {"CUDA_VISIBLE_DEVICES": "0"})
        assert refused.gpus == ()
        assert "name UUIDs" in (refused.problem or "")
    by_bus = {"CUDA_VISIBLE_DEVICES": "3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert choose_gpus(TYPES, by_bus).gpus == TYPES[3:]
    assert choose_gpus(SLICES, {"CUDA_VISIBLE_DEVICES": "MIG-1"}).gpus == SLICES[1:]


def test_one_type_at_a_time() -> None:
    refused = choose_gpus(TYPES, {})
    assert refused.gpus == ()
    assert (refused.problem or "").endswith("here with CUDA_VISIBLE_DEVICES=GPU-aa,GPU-bb,GPU-cc")
    assert choose_gpus(TYPES, {"CUDA_VISIBLE_DEVICES": "GPU-dd"}).gpus == TYPES[3:]
