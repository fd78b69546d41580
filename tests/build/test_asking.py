"""What children are given beside their request: their device, their compilers, their turn."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace

import pytest

from prewarm.build.device import Device
from prewarm.build.gpu import Gpu
from prewarm.build.place import Place
from prewarm.build.run import open_run
from prewarm.build.scan_run import process_job
from prewarm.build.survey import Surveyor
from prewarm.registry.scan import scan_registry

GPU = Gpu("GPU-aa", "NVIDIA H200", 3)


def variables_of_children(shop, place: Place) -> dict[str, dict[str, str]]:
    """Build and prove a model; return the variables of its children by kind."""
    told = shop.root / "told"
    shop.model("m", tell_environ=str(told))
    registry = shop.settings.registry
    with open_run(
        shop.settings,
        what="test",
        report=shop.steps.append,
        stop=threading.Event(),
        now_s=time.time,
    ) as bench:
        later_s = time.time() + 60
        found = scan_registry(registry, settle_s=shop.settings.settle_s, now_s=later_s)
        [job] = Surveyor(bench).survey(found).jobs
        assert process_job(replace(bench, place=place), job).status == "warm"
    return dict(map(json.loads, told.read_text().splitlines()))


def test_a_build_has_its_compilers_and_turn_which_no_start_has(
    shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_COMPILE_THREADS", raising=False)
    monkeypatch.setattr("prewarm.build.compile_threads.present_cpus", lambda: 64)
    monkeypatch.setattr("prewarm.build.compile_threads.cpu_quota", lambda: 6.0)
    told = variables_of_children(shop, Place(builds=2))
    only_of_a_build = ("TORCHINDUCTOR_COMPILE_THREADS", "MAX_JOBS", "PREWARM_TURN")
    assert told["compile"]["TORCHINDUCTOR_COMPILE_THREADS"] == "3"
    assert told["compile"]["MAX_JOBS"] == "3"
    assert told["compile"]["PREWARM_TURN"]
    assert [name for name in only_of_a_build if name in told["prove"]] == []
    published = shop.entry("m").record["variables"]
    assert [name for name in only_of_a_build if name in published] == []


def test_each_child_sees_its_own_gpu_alone(shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    told = variables_of_children(shop, Place(Device("cuda", GPU)))
    seen = {kind: environ["CUDA_VISIBLE_DEVICES"] for kind, environ in told.items()}
    assert seen == {"compile": "GPU-aa", "prove": "GPU-aa"}
