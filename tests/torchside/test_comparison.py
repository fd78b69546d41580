"""What a directory was filled for, against the process: a line, and caches left where they harm."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from prewarm.torchside.comparison import Comparison
from prewarm.torchside.deployment import Deployment
from prewarm.torchside.facts import cpu_isa
from prewarm.torchside.mends import Mends

CACHES = {"TORCHINDUCTOR_CACHE_DIR": "/private/tree/inductor"}


def deployment(**facts: str | None) -> Deployment:
    return Deployment(
        {"A": "1"}, None, caches=CACHES, environments={"id": {"device": "cpu", **facts}}
    )


def started(found: Deployment, environ: dict[str, str], torch_dir: Path | None = None) -> list[Any]:
    """Compare and set the variables as the shim does; return what was told."""
    told: list[Any] = []
    comparison = Comparison(found, environ, lambda event, **fields: told.append(fields))
    torch: Any = types.ModuleType("torch")
    if torch_dir is not None:
        torch.__file__ = str(torch_dir / "__init__.py")
    before = list(sys.meta_path)
    try:
        Mends(found, environ, comparison).start(torch)
    finally:
        sys.meta_path[:] = before
    return told


def test_the_same_facts_are_no_word_worth(capsys: pytest.CaptureFixture[str]) -> None:
    environ: dict[str, str] = {}
    assert started(deployment(cpu_isa=cpu_isa()), environ) == []
    assert environ == {"A": "1", **CACHES}
    assert capsys.readouterr().err == ""


def test_other_instructions_leave_the_caches_alone(capsys: pytest.CaptureFixture[str]) -> None:
    environ = dict(CACHES)
    (told,) = started(deployment(cpu_isa="avx2,other"), environ)
    assert told == {
        "fact": "cpu_isa", "recorded": "avx2,other", "present": cpu_isa(), "refused": True,
    }  # fmt: skip
    assert environ == {"A": "1"}
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("prewarm: cpu isa is ")
    assert line.endswith("built with avx2,other; its caches are not used, this start is cold")


def test_a_cache_directory_of_the_servers_own_stays() -> None:
    environ = {"TORCHINDUCTOR_CACHE_DIR": "/srv/own"}
    started(deployment(cpu_isa="other"), environ)
    assert environ["TORCHINDUCTOR_CACHE_DIR"] == "/srv/own"


def test_another_torch_is_told_and_only_compiles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "version.py").write_text("__version__ = '2.12.0'\ncuda = None\n")
    environ: dict[str, str] = {}
    (told,) = started(deployment(torch="2.13.0"), environ, tmp_path)
    assert (told["fact"], told["present"], told["refused"]) == ("torch", "2.12.0", False)
    assert environ["TORCHINDUCTOR_CACHE_DIR"] == CACHES["TORCHINDUCTOR_CACHE_DIR"]
    assert "torch is 2.12.0 here" in capsys.readouterr().err


def test_it_is_switched_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"PREWARM_MENDS": "0"}
    assert started(deployment(cpu_isa="other"), environ) == []
    assert environ["TORCHINDUCTOR_CACHE_DIR"] == CACHES["TORCHINDUCTOR_CACHE_DIR"]
    assert len(started(deployment(cpu_isa="other"), {"PREWARM_MENDS": "comparison"})) == 1


# -- the GPU, which is asked once a graph comes to it


def gpu(monkeypatch: pytest.MonkeyPatch, *, initialized: bool, sm_count: int) -> Any:
    """Return a compile_fx module beside a torch with one GPU."""
    torch: Any = types.ModuleType("torch")
    properties = types.SimpleNamespace(
        name="NVIDIA H200", major=9, minor=0, multi_processor_count=sm_count
    )
    torch.cuda = types.SimpleNamespace(
        is_initialized=lambda: initialized,
        current_device=lambda: 0,
        get_device_properties=lambda index: properties,
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    module: Any = types.ModuleType("compile_fx")
    module.compile_fx = lambda graph: graph
    return module, torch


@pytest.mark.parametrize(("sm_count", "left"), [(132, False), (66, True)])
def test_a_gpu_is_compared_with_the_first_graph(
    monkeypatch: pytest.MonkeyPatch, sm_count: int, left: bool
) -> None:
    module, _ = gpu(monkeypatch, initialized=True, sm_count=sm_count)
    found = deployment(device="NVIDIA H200", capability="9.0", sm_count="132")
    environ, told = dict(CACHES), []
    comparison = Comparison(found, environ, lambda event, **fields: told.append(fields["fact"]))
    assert comparison.watch_device(module)
    assert told == []
    assert [module.compile_fx("graph"), module.compile_fx("graph")] == ["graph", "graph"]
    assert told == (["sm_count"] if left else [])
    assert environ == ({} if left else CACHES)


def test_a_gpu_that_is_not_in_use_yet_is_not_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    module, torch = gpu(monkeypatch, initialized=False, sm_count=1)
    told: list[str] = []
    found = deployment(device="NVIDIA H200", sm_count="132")
    comparison = Comparison(found, {}, lambda event, **fields: told.append(fields["fact"]))
    comparison.watch_device(module)
    module.compile_fx("on the CPU")
    assert told == []
    torch.cuda.is_initialized = lambda: True
    module.compile_fx("on the GPU")
    assert told == ["sm_count"]


def test_where_no_gpu_is_declared_none_is_asked() -> None:
    module: Any = types.ModuleType("compile_fx")
    module.compile_fx = before = lambda graph: graph
    assert not Comparison(deployment(), {}, lambda event, **fields: None).watch_device(module)
    assert module.compile_fx is before
