"""Row 4, a hit that compiles: torch's counters say hit, and a compiler runs all the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from prewarm.build.child import ChildFailed

from .bed import Model, make_model
from .children import Children, told, verdict_of

CALLS = [[[8, 64]]]


@pytest.fixture(scope="module")
def built(make_place, tmp_path_factory) -> tuple[Model, Path]:
    """One build's cache directory; each case takes a copy."""
    model = make_model(make_place(), "m")
    children = Children(model, tmp_path_factory.mktemp("built"))
    report = children.compile()["report"]
    # What is counted is what really ran: one graph, its C++ kernels, g++ for each.
    assert (report["graphs_compiled"], report["fx_misses"], report["aot_misses"]) == (1, 1, 1)
    assert report["cpp_compiled"] >= 1 and report["compilers_started"] >= report["cpp_compiled"]
    return model, children.cache


def _copy(built: tuple[Model, Path], root: Path) -> Children:
    model, cache = built
    children = Children(model, root)
    shutil.copytree(cache, children.cache)
    return children


def test_a_bundle_without_its_objects_is_not_warm(built, tmp_path, fault_row) -> None:
    children = _copy(built, tmp_path)
    removed = list(children.cache.rglob("*.so"))
    assert removed
    for path in removed:
        path.unlink()
    kept = tmp_path / "kept"
    shutil.copytree(children.cache / "inductor", kept)
    proof = children.prove()
    verdict = verdict_of(proof)
    assert (verdict.status, verdict.code) == ("partial", "cpp_compiled")
    assert proof["report"]["fx_misses"] == proof["report"]["graphs_compiled"] == 0
    assert proof["report"]["compilers_started"] >= 1
    alone = children.model.alone(kept, CALLS, dynamic=False)
    assert (alone["fx_hit"], alone["fx_miss"]) == (1, 0) and alone["compilers"] >= 1
    fault_row(
        4,
        "a bundle without C++ objects, as Mega-Cache's",
        alone=f"counters: 1 hit, 0 misses; {alone['compilers']} compiler runs",
        said=told(verdict),
    )


def test_another_instruction_set_is_not_warm(built, tmp_path, fault_row) -> None:
    """The graph hits, its kernels are compiled for other vectors: they fail or answer wrongly."""
    children = _copy(built, tmp_path)
    wide = " avx512f " in Path("/proc/cpuinfo").read_text()
    other = {"ATEN_CPU_CAPABILITY": "avx2" if wide else "default"}
    kept = tmp_path / "kept"
    shutil.copytree(children.cache / "inductor", kept)
    try:
        verdict = verdict_of(children.prove(variables=other))
    except ChildFailed as error:
        said = f"failed: {error}"
    else:
        assert verdict.status != "warm"
        said = told(verdict)
    alone = children.model.alone(kept, CALLS, dynamic=False, variables=other)
    assert (alone["fx_hit"], alone["fx_miss"]) == (1, 0)
    assert alone["compilers"] >= 1
    wrong = "a wrong answer" if alone["wrong"] else f"it ends with {alone['failed']}"
    fault_row(
        4,
        f"another instruction set ({other['ATEN_CPU_CAPABILITY']})",
        alone=f"counters: 1 hit, 0 misses; {alone['compilers']} compiler run, {wrong}",
        said=said[:200],
    )


def test_another_users_precompiled_header_is_not_needed(built, tmp_path, fault_row) -> None:
    """torch keeps it in the default directory of the user who built; both sides do without it."""
    children = _copy(built, tmp_path / "warm")
    model, homes = children.model, {}
    for who in ("builder", "other"):
        (tmp_path / who).mkdir()
        homes[who] = {
            "HOME": str(tmp_path / who),
            "TMPDIR": str(tmp_path / who),
            "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "1",
        }
    cache = tmp_path / "cache"
    model.alone(cache, CALLS, dynamic=False, variables=homes["builder"])
    own, other = (
        model.alone(cache, CALLS, dynamic=False, variables=homes[who])
        for who in ("builder", "other")
    )
    assert own["compilers"] == 0
    assert (other["fx_hit"], other["fx_miss"]) == (1, 0) and other["compilers"] >= 1
    # A proof has a HOME and a TMPDIR of its own.
    verdict = verdict_of(children.prove())
    assert verdict.status == "warm"
    fault_row(
        4,
        "another user (the precompiled header is in the builder's directory)",
        alone=f"1 hit, 0 misses; {other['compilers']} compiler run",
        said="warm: headers are off on both sides, no compiler started",
    )
