"""Doctor says what a service builds on, how it keeps children, and how many compilers run."""

from __future__ import annotations

from pathlib import Path

import pytest

from prewarm.build import devices
from prewarm.build.gpu import Gpu, Listing
from prewarm.build.gpu_load import Load
from prewarm.cli import work_check
from prewarm.cli.finding import Finding
from prewarm.cli.work_check import check_work
from prewarm.config import Settings

SETTINGS = Settings(None, Path("/c"), Path("/s"), "test")
H200, L4 = Gpu("GPU-aa", "NVIDIA H200", 0), Gpu("GPU-bb", "NVIDIA L4", 1)


def builds_on(
    monkeypatch: pytest.MonkeyPatch,
    *gpus: Gpu,
    load: Load | None = None,
    problem: str | None = None,
) -> list[Finding]:
    monkeypatch.setattr(devices, "list_gpus", lambda: Listing(gpus, problem))
    monkeypatch.setattr(work_check, "read_load", lambda gpu: load)
    found = check_work(SETTINGS, {})
    return [finding for finding in found if finding.check == "builds on"]


def test_each_gpu_with_what_others_have_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    [one] = builds_on(monkeypatch, H200, load=Load(14 << 30, 140 << 30, 0))
    assert (one.level, one.found) == ("ok", "NVIDIA H200 GPU-aa, 10% of its memory is taken")
    [one] = builds_on(monkeypatch, H200, load=Load(70 << 30, 140 << 30, 0))
    assert one.level == "warn"
    assert "others hold 70 of its 140 GiB" in one.found
    assert (one.next_step or "").startswith("end them, or name other GPUs")
    [one] = builds_on(monkeypatch, H200)
    assert "cannot be told" in one.found


def test_no_gpu_is_fine_and_several_types_have_a_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [one] = builds_on(monkeypatch, problem="NVML does not answer")
    assert one.level == "ok"
    assert "NVML does not answer" in one.found
    [one] = builds_on(monkeypatch, H200, L4)
    assert (one.level, one.next_step) == (
        "warn",
        "start one for each, here with CUDA_VISIBLE_DEVICES=GPU-aa",
    )


def test_children_and_compilers_of_this_machine() -> None:
    found = {finding.check: finding for finding in check_work(SETTINGS, {"MAX_JOBS": "3"})}
    assert found["children"].found.startswith(("in process groups", "in cgroups of their own"))
    assert " at once in a build on the CPU (" in found["compilers"].found
    assert found["compilers"].found.endswith(", MAX_JOBS=3")
