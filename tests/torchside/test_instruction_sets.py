"""torch's trials of instruction sets are recorded by a build, and taken only where they hold."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prewarm.torchside.instruction_sets import FILE_NAME, MODULE, Recorder, reuse


def vectors(*, works: bool = True, compiler: str = "g++ 12") -> Any:
    """Return a module as torch's ``cpu_vec_isa`` is, as far as is reached; it counts its trials."""
    module: Any = types.ModuleType(MODULE)
    module.trials = 0

    class VecISA:
        flags = "-mavx2"

        def build_arch_flags(self) -> str:
            return self.flags

        def check_build(self, code: str) -> bool:
            module.trials += 1
            return works

    module.VecISA = VecISA
    module._get_isa_dry_compile_fingerprint = lambda flags: f"{compiler}={flags}=2.13.0"
    return module


@pytest.fixture(autouse=True)
def finders() -> Iterator[None]:
    before = list(sys.meta_path)
    yield
    sys.meta_path[:] = before
    sys.modules.pop(MODULE, None)


def recorded(cache: Path, module: Any, *codes: str) -> None:
    sys.modules[MODULE] = module
    recorder = Recorder()
    recorder.start()
    for code in codes:
        module.VecISA().check_build(code)
    recorder.write(str(cache))


@pytest.mark.parametrize("works", [True, False])
def test_a_recorded_answer_saves_the_trial(tmp_path: Path, works: bool) -> None:
    recorded(tmp_path, vectors(works=works), "code")
    module = vectors(works=not works)
    assert reuse(module, {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
    assert module.VecISA().check_build("code") is works
    assert module.trials == 0


def test_another_code_or_other_flags_are_tried(tmp_path: Path) -> None:
    recorded(tmp_path, vectors(), "code")
    module = vectors(works=False)
    reuse(module, {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
    assert not module.VecISA().check_build("other code")
    other = module.VecISA()
    other.flags = "-mavx512f"
    assert not other.check_build("code")
    assert module.trials == 2


def test_another_compiler_or_cpu_tries_all_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(tmp_path, vectors(), "code")
    environ = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    module = vectors(works=False, compiler="g++ 14")
    assert reuse(module, environ)
    assert not module.VecISA().check_build("code")
    monkeypatch.setattr("prewarm.torchside.facts.cpu_isa", lambda: "avx2,other")
    module = vectors(works=False)
    assert reuse(module, environ)
    assert not module.VecISA().check_build("code")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2, "fingerprint": "", "answers": {}}', "\x00"]
)
def test_a_record_of_no_use_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    module = vectors()
    assert not reuse(module, {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
    assert module.VecISA().check_build("code")
    assert module.trials == 1


def test_without_a_cache_directory_or_a_trial_nothing_is_done(tmp_path: Path) -> None:
    assert not reuse(vectors(), {})
    recorded(tmp_path, vectors())
    assert list(tmp_path.iterdir()) == []


def test_a_release_that_asks_in_another_way_is_left_alone(tmp_path: Path) -> None:
    recorded(tmp_path, vectors(), "code")
    environ = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    renamed, otherwise = vectors(), vectors()
    del renamed._get_isa_dry_compile_fingerprint
    otherwise.VecISA.check_build = lambda self, text, flags: True
    before = otherwise.VecISA.check_build
    assert not reuse(renamed, environ) and not reuse(otherwise, environ)
    assert otherwise.VecISA.check_build is before
    assert not reuse(types.ModuleType(MODULE), environ)


def test_the_installed_torch_asks_in_the_way_that_we_know(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import torch._inductor.cpu_vec_isa as module

    recorded(tmp_path, vectors(), "code")
    before = module.VecISA.check_build
    try:
        assert reuse(module, {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
        assert module.VecISA.check_build is not before
    finally:
        module.VecISA.check_build = before
    found = json.loads((tmp_path / FILE_NAME).read_text())
    assert set(found) == {"format", "fingerprint", "answers"}
    assert str(Path.home()) not in (tmp_path / FILE_NAME).read_text()
