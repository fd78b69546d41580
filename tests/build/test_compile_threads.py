"""Compilers are started as quota and affinity leave room for, not as the machine has CPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from prewarm.build import compile_threads as module
from prewarm.build.compile_threads import compile_threads, cpu_quota, thread_variables
from prewarm.build.own_cgroup import OwnCgroup


@pytest.mark.parametrize(
    ("cpus", "quota", "builds", "count"),
    [
        (64, None, 1, 32),
        (64, 2.0, 1, 2),
        (64, 2.5, 1, 3),
        (2, 8.0, 1, 2),
        (64, 0.2, 1, 1),
        (8, None, 2, 4),
        (2, None, 5, 1),
    ],
)
def test_the_least_of_quota_affinity_and_torchs_own_limit(
    cpus: int, quota: float | None, builds: int, count: int
) -> None:
    assert compile_threads(cpus, quota, builds=builds) == count


def test_the_smallest_quota_on_the_way_up_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unified, legacy = tmp_path / "unified", tmp_path / "cpu"
    for directory in (unified / "a" / "b", legacy / "c"):
        directory.mkdir(parents=True)
    places = {
        "": OwnCgroup(unified / "a" / "b", unified),
        "cpu": OwnCgroup(legacy / "c", legacy),
    }
    monkeypatch.setattr(module, "own_cgroup", places.get)
    assert cpu_quota() is None
    (unified / "a" / "b" / "cpu.max").write_text("max 100000\n")
    (unified / "a" / "cpu.max").write_text("350000 100000\n")
    (legacy / "c" / "cpu.cfs_quota_us").write_text("-1\n")
    (legacy / "c" / "cpu.cfs_period_us").write_text("100000\n")
    assert cpu_quota() == 3.5
    (legacy / "c" / "cpu.cfs_quota_us").write_text("150000\n")
    assert cpu_quota() == 1.5


def test_what_the_service_was_given_stays() -> None:
    assert thread_variables({"TORCHINDUCTOR_COMPILE_THREADS": "7"}).keys() == {"MAX_JOBS"}
    assert set(thread_variables({}).values()) == {str(module.compile_threads(
        module.present_cpus(), cpu_quota()))}  # fmt: skip
