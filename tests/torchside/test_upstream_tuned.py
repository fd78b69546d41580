"""Tuned configurations are looked for where the cache lies now, with one ``ptxas`` throughout."""

from __future__ import annotations

import os
import types
from pathlib import Path
from typing import Any

import pytest

from prewarm.torchside import upstream_tuned

NAME = "cabcdef.py"


class Cache:
    """As torch's AutotuneCache: a backend and the path of the ``.best_config``."""

    def __init__(self, path: Path) -> None:
        self.local_cache: tuple[str, str] | None = ("backend", str(path))

    def save(self) -> None:
        """The hook that an autotuner keeps."""


def autotuner_of(filename: str | None, save: Any = None) -> Any:
    """Return an autotuner of a module as torch's ``triton_heuristics``, moved by its recheck."""
    module: Any = types.ModuleType("triton_heuristics")
    seen: list[str | None] = []

    class CachingAutotuner:
        def __init__(self) -> None:
            self.filename, self.save_cache_hook, self.seen = filename, save, seen

        def recheck_autotune_cache(self, reload_kernel_from_src: Any) -> None:
            self.seen.append(self.filename)

    module.CachingAutotuner, module.triton = CachingAutotuner, types.ModuleType("triton")
    assert upstream_tuned.look_at_present_place(module)
    found = CachingAutotuner()
    found.recheck_autotune_cache(None)
    return found


@pytest.fixture(autouse=True)
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("torch")
    here = tmp_path / "here"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(here))
    return here


def test_a_kernel_is_looked_for_in_the_present_cache(cache_dir: Path) -> None:
    found = autotuner_of(f"/build/inductor/ab/{NAME}")
    assert found.seen == [str(cache_dir / "ab" / NAME)]


def test_what_is_tuned_now_is_written_beside_it(cache_dir: Path, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "build" / "ab" / "123.best_config")
    autotuner_of(f"/build/inductor/ab/{NAME}", cache.save)
    assert cache.local_cache == ("backend", str(cache_dir / "ab" / "123.best_config"))


@pytest.mark.parametrize("filename", [None, "/srv/app/kernels.py", "/build/xy/cabcdef.py"])
def test_what_is_no_file_of_a_cache_stays(filename: str | None, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "123.best_config")
    assert autotuner_of(filename, cache.save).seen == [filename]
    assert cache.local_cache == ("backend", str(tmp_path / "123.best_config"))


def test_a_release_without_the_function_and_a_machine_without_triton_are_left_alone() -> None:
    module: Any = types.ModuleType("triton_heuristics")
    module.triton = types.ModuleType("triton")
    assert not upstream_tuned.look_at_present_place(module)
    module.CachingAutotuner = type("CachingAutotuner", (), {"recheck_autotune_cache": None})
    module.CachingAutotuner.recheck_autotune_cache = lambda self, reload_kernel_from_src: None
    module.triton = None
    assert not upstream_tuned.look_at_present_place(module)


def test_the_installed_torch_keeps_its_files_so(cache_dir: Path) -> None:
    from torch._inductor.codecache import get_path
    from torch._inductor.runtime import triton_heuristics

    assert hasattr(triton_heuristics.CachingAutotuner, "recheck_autotune_cache")
    assert get_path("cabcdef", "py")[2] == str(cache_dir / "ab" / NAME)
    fields = triton_heuristics.CachingAutotuner.__init__.__code__.co_varnames
    assert {"filename", "save_cache_hook"} <= set(fields)


def test_one_ptxas_from_the_first_kernel_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_PTXAS_PATH", raising=False)
    module: Any = types.ModuleType("compile_tasks")
    module._set_triton_ptxas_path = lambda: monkeypatch.setitem(
        os.environ, "TRITON_PTXAS_PATH", "/torch/bin/ptxas"
    )
    assert upstream_tuned.settle_ptxas(module)
    assert os.environ["TRITON_PTXAS_PATH"] == "/torch/bin/ptxas"
    assert not upstream_tuned.settle_ptxas(module)
    monkeypatch.delenv("TRITON_PTXAS_PATH")
    assert not upstream_tuned.settle_ptxas(types.ModuleType("compile_tasks"))


def triton_cache(folder: Path, found: dict[str, str] | None) -> Any:
    """Return a module as ``triton.runtime.cache``, whose own look finds ``found``."""
    module: Any = types.ModuleType("cache")

    class FileCacheManager:
        cache_dir = str(folder)

        def get_group(self, filename: str) -> dict[str, str] | None:
            return found

    module.FileCacheManager = FileCacheManager
    assert upstream_tuned.look_beside_group(module)
    return FileCacheManager()


@pytest.mark.parametrize("found", [None, {}])
def test_artifacts_of_a_moved_tree_are_found_beside_their_list(
    tmp_path: Path, found: dict[str, str] | None
) -> None:
    (tmp_path / "k.cubin").touch()
    text = '{"child_paths": {"k.cubin": "/build/X/k.cubin", "k.ptx": "/build/X/k.ptx"}}'
    (tmp_path / "__grp__k.json").write_text(text)
    manager = triton_cache(tmp_path, found)
    assert manager.get_group("k.json") == {"k.cubin": str(tmp_path / "k.cubin")}


def test_what_triton_finds_itself_and_what_is_no_list_stay(tmp_path: Path) -> None:
    assert triton_cache(tmp_path, {"k": "/there"}).get_group("k.json") == {"k": "/there"}
    assert triton_cache(tmp_path, None).get_group("k.json") is None
    (tmp_path / "__grp__k.json").write_text('{"child_paths": 1}')
    assert triton_cache(tmp_path, None).get_group("k.json") is None
    assert not upstream_tuned.look_beside_group(types.ModuleType("cache"))
