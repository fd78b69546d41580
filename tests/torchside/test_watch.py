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
        "[finder for finder in sys.meta_path if 'Watching' in repr(finder)])"
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


def test_a_renamed_entry_point_is_null_and_not_zero(copy: Path, tmp_path: Path) -> None:
    upstream = copy / "prewarm_torchside" / "upstream.py"
    text = upstream.read_text()
    assert '"fx_codegen_and_compile"' in text
    upstream.write_text(text.replace('"fx_codegen_and_compile"', '"renamed_by_a_release"'))
    report = tmp_path / "report"
    run(
        COMPILE,
        copy,
        PREWARM_REPORT_DIR=str(report),
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"),
    )
    folded = fold(read_events(str(report)), has_triton=False)
    assert folded["graphs_compiled"] is None
    assert folded["fx_misses"] == 1
    assert folded["not_watched"] == ["torch._inductor.compile_fx:renamed_by_a_release"]


def test_every_point_says_which_versions_were_seen() -> None:
    assert all(point.seen for point in POINTS)
    assert len({(point.module, point.attribute) for point in POINTS}) == len(POINTS)
