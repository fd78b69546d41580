"""The watcher in real processes: inert without its variables, and never wrong by silence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from prewarm.store.torchside_copy import copy_torchside
from prewarm.torchside.events import read_events
from prewarm.torchside.report import fold
from prewarm.torchside.upstream import POINTS

COMPILE = """
import torch
def f(x):
    return torch.sin(x) + 1
torch.compile(f, dynamic=False)(torch.ones(4))
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    copy_torchside(tmp_path / "copy")
    return tmp_path / "copy"


def run(code: str, copy: Path, *flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(copy), **variables}
    return subprocess.run(
        [sys.executable, *flags, "-c", code],
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )


def test_inert_without_its_variables(copy: Path) -> None:
    code = (
        "import sys; print([name for name in sys.modules if 'prewarm_torchside' in name], "
        "[finder for finder in sys.meta_path if 'prewarm_torchside' in repr(finder)])"
    )
    assert run(code, copy).stdout.strip() == "[] []"


def test_a_foreign_sitecustomize_still_runs(copy: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "sitecustomize.py").write_text("import os; os.environ['FOREIGN'] = 'ran'")
    path = os.pathsep.join([str(copy), str(foreign)])
    told = run("import os; print(os.environ['FOREIGN'])", copy, PYTHONPATH=path)
    assert told.stdout.strip() == "ran"


def test_nothing_is_written_until_torch_is_imported(copy: Path, tmp_path: Path) -> None:
    run("import json", copy, PREWARM_REPORT_DIR=str(tmp_path / "report"))
    assert not (tmp_path / "report").exists()


def test_a_cold_and_a_warm_start_are_told_apart(copy: Path, tmp_path: Path) -> None:
    def start(name: str) -> dict:
        report = tmp_path / name
        run(
            COMPILE,
            copy,
            PREWARM_REPORT_DIR=str(report),
            TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"),
            TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS="0",
            HOME=str(tmp_path / "home"),
        )
        return fold(read_events(str(report)), has_triton=False)

    cold, warm = start("cold"), start("warm")
    assert cold["graphs_compiled"] == 1
    assert cold["fx_misses"] == cold["aot_misses"] == 1
    assert cold["cpp_compiled"] >= 1
    assert cold["compilers_started"] >= 1
    assert cold["files_changed"] > 1
    assert {name: count for name, count in warm.items() if isinstance(count, int) and count} == {}
    assert cold["not_watched"] == warm["not_watched"] == []
    (compiled,), (found,) = cold["graphs"], warm["graphs"]
    assert (compiled["outcome"], found["outcome"]) == ("miss", "hit")
    assert compiled["seconds"] > 0
    changing = ("pid", "outcome", "seconds")
    assert {k: v for k, v in compiled.items() if k not in changing} == {
        "frame": {"name": "f", "of": None, "file": "<string>", "line": 3},
        "grad": "grad", "autocast": "", "mode": "default", "dynamic": "false", "config": {},
        "inputs": [{"name": "x", "dtype": "float32", "shape": [4]}],
        "parameters": {"count": 0, "elements": 0, "dtypes": {}, "requires_grad": 0, "other": 0},
        "precision": "highest", "deterministic": False, "threads": compiled["threads"],
        "reason": None,
    }  # fmt: skip
    assert warm["processes"][0]["device_indices"] == []
    assert 0 < warm["processes"][0]["first_run_s"] < cold["processes"][0]["first_run_s"]


def test_a_renamed_entry_point_or_module_is_null_and_not_zero(copy: Path, tmp_path: Path) -> None:
    upstream = copy / "prewarm_torchside" / "upstream.py"
    text = upstream.read_text()
    for name in ('"fx_codegen_and_compile"', '"torch._inductor.cpp_builder"'):
        assert name in text
        text = text.replace(name, name[:-1] + '_renamed"')
    upstream.write_text(text)
    report = tmp_path / "report"
    run(
        COMPILE,
        copy,
        PREWARM_REPORT_DIR=str(report),
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"),
    )
    folded = fold(read_events(str(report)), has_triton=False)
    assert folded["graphs_compiled"] is folded["cpp_compiled"] is None
    assert folded["fx_misses"] == 1
    assert folded["graphs"][0]["outcome"] is None
    assert folded["not_watched"] == [
        "torch._inductor.compile_fx:fx_codegen_and_compile_renamed",
        "torch._inductor.cpp_builder_renamed:CppBuilder.build",
    ]


SURROUNDED = """
import torch
class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.register_buffer("scale", torch.ones(8))
    def forward(self, x):
        return self.linear(x) * self.scale
def seen(graph, examples):
    import torch._inductor.compile_fx as entry
    try:
        entry.compile_fx(graph, examples, config_patches={"max_autotune": True, "no": 1})
    except Exception:  # a setting that does not exist
        return graph.forward
module = Scaled().bfloat16().requires_grad_(False)
torch.nn.init.ones_(module.linear.weight)
module.linear.bias.requires_grad_(True)
torch.set_float32_matmul_precision("high")
torch.use_deterministic_algorithms(True)
torch.set_num_threads(1)
import torch._inductor.config
torch._inductor.config.max_fusion_size = 7
with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
    torch.compile(module, backend=seen, dynamic=True)(torch.ones(8, 6).bfloat16().t())
def own(x):
    return module(x)
with torch.no_grad():
    torch.compile(own, backend=seen)(torch.ones(2, 8).bfloat16())
"""


def test_a_graph_is_told_with_its_surroundings(copy: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    run(SURROUNDED, copy, PREWARM_REPORT_DIR=str(report))
    first, second = fold(read_events(str(report)), has_triton=False)["graphs"]
    assert first["frame"]["name"] == "forward"
    assert first["frame"]["of"] == "Scaled"
    (given,) = first["inputs"]
    assert (given["name"], given["dtype"]) == ("x", "bfloat16")
    assert (given["sizes"], given["strides"]) == ([6, 8], [1, 6])
    assert isinstance(given["shape"][0], str)
    assert first["parameters"] == {
        "count": 2, "elements": 72, "dtypes": {"bfloat16": 2}, "requires_grad": 1, "other": 1,
    }  # fmt: skip
    told = ("grad", "autocast", "dynamic", "precision", "deterministic", "threads", "mode")
    assert [first[name] for name in told] == [
        "inference", "bfloat16", "true", "high", True, 1, "default with max_autotune=True, no=1",
    ]  # fmt: skip
    assert first["config"] == {"max_fusion_size": "7"}
    assert (second["frame"]["name"], second["frame"]["of"]) == ("own", None)
    assert [second[name] for name in ("grad", "autocast", "dynamic")] == ["no_grad", "", "auto"]
    assert "strides" not in second["inputs"][0]
    assert first["reason"] is not None, "the entry raised"


WORKER = """
import os
from torch._inductor.cpp_builder import CppBuilder, CppOptions
def build(directory):
    source = os.path.join(directory, "source.cpp")
    with open(source, "w") as file:
        file.write("int answer() { return 42; }")
    CppBuilder("answer", source, CppOptions(), output_dir=directory).build()
    return os.getpid()
"""

ASK_WORKER = """
import os, sys, worker
from torch._inductor.compile_worker.subproc_pool import SubprocPool
from torch._inductor.runtime.benchmarking import benchmarker
pool = SubprocPool(1)
pid = pool.submit(worker.build, sys.argv[1]).result()
pool.shutdown()
benchmarker.benchmark(lambda: None, device="cpu", warmup=1, rep=1)
print(os.getpid(), pid)
"""


def test_worker_processes_and_every_clock_are_watched(copy: Path, tmp_path: Path) -> None:
    report, own = tmp_path / "report", tmp_path / "own"
    own.mkdir()
    (own / "worker.py").write_text(WORKER)
    code = f"import sys; sys.argv = ['', {str(own)!r}]\n{ASK_WORKER}"
    path = os.pathsep.join([str(copy), str(own)])
    told = run(code, copy, PREWARM_REPORT_DIR=str(report), PYTHONPATH=path)
    parent, worker = told.stdout.split()[-2:]
    events = read_events(str(report))
    built = {event["pid"] for event in events if event["event"] in ("cpp_compiled", "compiler")}
    assert parent != worker
    assert built == {int(worker)}
    folded = fold(events, has_triton=False)
    assert folded["cpp_compiled"] == folded["compilers_started"] == 1
    assert folded["benchmarked_autotuning"] == 1
    assert int(parent) in {process["pid"] for process in folded["processes"]}


def test_every_point_says_which_versions_were_seen() -> None:
    assert all(point.seen for point in POINTS)
    assert len({(point.module, point.attribute) for point in POINTS}) == len(POINTS)
