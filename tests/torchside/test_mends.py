"""The shim's mends: only where the release needs them, and never in the way of a start."""

from __future__ import annotations

import logging
import types
from pathlib import Path
from typing import Any

import pytest

from prewarm.torchside import upstream_mends
from prewarm.torchside.deployment import Deployment, read_deployment
from prewarm.torchside.mends import MENDS, Mends


class Config:
    """A configuration as Triton's are: values, and how it was found."""

    def __init__(self, warps: int) -> None:
        self.warps = warps


class Result:
    def __init__(self, config: Config) -> None:
        self.config = config


def heuristics(kept: Config | None, *, mended: bool = False) -> Any:
    """Return a module as torch 2.11's ``triton_heuristics`` is, as far as the mend reaches."""
    module: Any = types.ModuleType("triton_heuristics")

    class CachingAutotuner:
        filename, inductor_meta, autotune_cache_info = "kernel.py", {}, None
        fn = types.SimpleNamespace(fn=None)

        def __init__(self, *configs: Config) -> None:
            self.compile_results = [Result(config) for config in configs]
            self.upstream, self.compiled = 0, 0

        def _precompile_config(self, config: Config) -> Result:
            self.compiled += 1
            return Result(config)

    def recheck_2_11(self: Any, reload_kernel_from_src: Any) -> None:
        self.upstream += 1

    def recheck_2_13(self: Any, reload_kernel_from_src: Any) -> None:
        getattr(self, "found_by_coordesc", False)

    recheck = recheck_2_13 if mended else recheck_2_11
    CachingAutotuner.recheck_autotune_cache = recheck  # type: ignore[attr-defined]
    module.CachingAutotuner = CachingAutotuner
    module.check_autotune_cache = lambda configs, name, meta: (
        [kept] if kept else configs,
        None,
        {"state": "hit" if kept else "miss"},
    )
    module.triton_config_to_hashable = lambda config: config.warps
    return module


def tuned(warps: int) -> Config:
    config = Config(warps)
    config.found_by_coordesc = True  # type: ignore[attr-defined]
    return config


def recheck(module: Any, *configs: Config) -> Any:
    autotuner = module.CachingAutotuner(*configs)
    autotuner.recheck_autotune_cache(lambda: types.SimpleNamespace(fn="loaded"))
    return autotuner


@pytest.mark.parametrize("candidates", [1, 2])
def test_a_saved_kernel_remembers_that_it_was_tuned(candidates: int) -> None:
    module = heuristics(tuned(4))
    assert upstream_mends.keep_tuned_configs(module)
    found = recheck(module, *(Config(warps) for warps in (4, 8)[:candidates]))
    assert [result.config.warps for result in found.compile_results] == [4]
    assert found.compile_results[0].config.found_by_coordesc
    assert (found.upstream, found.compiled) == (0, 0)


def test_a_configuration_that_was_not_saved_is_the_only_one_compiled() -> None:
    module = heuristics(tuned(16))
    assert upstream_mends.keep_tuned_configs(module)
    found = recheck(module, Config(4))
    assert [result.config.warps for result in found.compile_results] == [16]
    assert found.compiled == 1


@pytest.mark.parametrize("kept", [None, Config(4)])
def test_without_a_tuned_configuration_torch_goes_its_own_way(kept: Config | None) -> None:
    module = heuristics(kept)
    assert upstream_mends.keep_tuned_configs(module)
    assert recheck(module, Config(4)).upstream == 1


def test_a_release_that_is_mended_or_unlike_is_left_alone() -> None:
    mended = heuristics(tuned(4), mended=True)
    before = mended.CachingAutotuner.recheck_autotune_cache
    assert not upstream_mends.keep_tuned_configs(mended)
    assert mended.CachingAutotuner.recheck_autotune_cache is before
    assert not upstream_mends.keep_tuned_configs(types.ModuleType("triton_heuristics"))


def test_the_installed_torch_does_not_need_it() -> None:
    pytest.importorskip("torch")
    from torch._inductor.runtime import triton_heuristics

    before = triton_heuristics.CachingAutotuner.recheck_autotune_cache
    assert not upstream_mends.keep_tuned_configs(triton_heuristics)
    assert triton_heuristics.CachingAutotuner.recheck_autotune_cache is before


def test_a_limit_is_raised_and_never_lowered() -> None:
    config: Any = types.ModuleType("config")
    config.recompile_limit, config.accumulated_recompile_limit = 8, 256
    assert upstream_mends.raise_recompile_limit(config, 10)
    assert (config.recompile_limit, config.accumulated_recompile_limit) == (10, 256)
    assert not upstream_mends.raise_recompile_limit(config, 4)
    assert config.recompile_limit == 10
    assert upstream_mends.raise_recompile_limit(config, 300)
    assert (config.recompile_limit, config.accumulated_recompile_limit) == (300, 300)


def test_headers_are_left_alone_where_no_variable_reaches_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config: Any = types.ModuleType("config")
    config.cpp_cache_precompile_headers = True
    assert not upstream_mends.leave_headers_alone(config), "nobody asked for it"
    monkeypatch.setenv("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "0")
    assert upstream_mends.leave_headers_alone(config)
    assert config.cpp_cache_precompile_headers is False
    assert not upstream_mends.leave_headers_alone(config)
    assert not upstream_mends.leave_headers_alone(types.ModuleType("config"))


def test_the_guards_are_timed_only_for_who_reads_it(caplog: pytest.LogCaptureFixture) -> None:
    guards: Any = types.ModuleType("guards")
    guards.guards_log = logging.getLogger("test.guards")
    guards.profile_guard_manager = lambda *arguments: 42.0
    assert upstream_mends.skip_guard_timing(guards)
    assert guards.profile_guard_manager("root", {}, 1) == 0.0
    caplog.set_level(logging.DEBUG, "test.guards")
    assert guards.profile_guard_manager("root", {}, 1) == 42.0
    assert not upstream_mends.skip_guard_timing(types.ModuleType("guards"))


def test_traced_functions_are_named_only_for_who_reads_it(caplog: pytest.LogCaptureFixture) -> None:
    module: Any = types.ModuleType("symbolic_convert")
    module.get_funcname = lambda filename, line: "forward"
    module.trace_call_log = logging.getLogger("test.trace_call")
    assert not upstream_mends.skip_trace_names(module), "another log may read it"
    module.trace_source_log = logging.getLogger("test.trace_source")
    assert upstream_mends.skip_trace_names(module)
    assert module.get_funcname("file.py", 3) is None
    caplog.set_level(logging.DEBUG, "test.trace_source")
    assert module.get_funcname("file.py", 3) == "forward"


def test_a_template_is_compiled_when_it_is_used() -> None:
    compiled: list[str] = []
    common: Any = types.ModuleType("common")

    class KernelTemplate:
        @staticmethod
        def _template_from_string(source: str) -> Any:
            compiled.append(source)
            return types.SimpleNamespace(render=lambda **given: source.format(**given))

    common.KernelTemplate, common.jinja2_env = KernelTemplate, lambda: "an engine"
    assert upstream_mends.compile_templates_late(common)
    template = KernelTemplate()._template_from_string("load {name}")
    assert template and compiled == []
    assert template.render(name="a") == "load a"
    assert template.render(name="b") == "load b"
    assert compiled == ["load {name}"]
    common.jinja2_env = lambda: None
    assert not upstream_mends.compile_templates_late(types.ModuleType("common"))


def test_every_mend_finds_its_place_in_the_installed_torch() -> None:
    pytest.importorskip("torch")
    import importlib

    import torch._dynamo.guards
    import torch._dynamo.symbolic_convert

    modules = [mend.module for mend in MENDS if mend.module.partition(".")[0] == "torch"]
    assert len(modules) == len(MENDS) - 1  # the other one is Triton's, which a CPU build lacks
    assert [importlib.import_module(module).__name__ for module in modules] == modules
    place, name = torch._dynamo.guards, "profile_guard_manager"
    timing, funcname = getattr(place, name), torch._dynamo.symbolic_convert.get_funcname
    try:
        assert upstream_mends.skip_guard_timing(place)
        assert upstream_mends.skip_trace_names(torch._dynamo.symbolic_convert)
    finally:
        setattr(place, name, timing)
        torch._dynamo.symbolic_convert.get_funcname = funcname


def test_a_mend_that_fails_is_told_and_left(capsys: pytest.CaptureFixture[str]) -> None:
    mends = Mends(Deployment({}, "nine"), {})  # type: ignore[arg-type]
    config: Any = types.ModuleType("torch._dynamo.config")
    config.recompile_limit = 8
    mends._imported(config)
    assert (config.recompile_limit, mends.made) == (8, [])
    assert "recompile_limit is left as it is: TypeError" in capsys.readouterr().err


def test_the_switch_names_what_is_made() -> None:
    def names(switch: str | None) -> set[str]:
        environ = {} if switch is None else {"PREWARM_MENDS": switch}
        return {mend.name for mend in Mends(Deployment({}, 9), environ)._waiting.values()}

    assert names(None) == names("") == {mend.name for mend in MENDS}
    assert names("0") == set()
    assert names("retuning, collector") == {"retuning", "collector"}


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format": 2}', '{"format": 1}', '{"format": 1, "caches": 3}', "\x00"]
)
def test_an_env_json_of_no_use_is_told_and_starts_as_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "env.json").write_text(text)
    assert read_deployment(str(tmp_path)) is None
    assert str(tmp_path / "env.json") in capsys.readouterr().err


def test_the_variables_of_a_directory_are_set_where_they_are_not(tmp_path: Path) -> None:
    (tmp_path / "env.json").write_text(
        '{"format": 1, "caches": {"TRITON_CACHE_DIR": "tree/triton"}, "variables": {"A": "1"},'
        ' "entries": [{"compile": {"recompile_limit": null}}, {"compile": {"recompile_limit": 9}}]}'
    )
    found = read_deployment(str(tmp_path))
    assert found is not None and found.recompile_limit == 9
    environ = {"A": "kept"}
    found.set_variables(environ)
    assert environ == {"A": "kept", "TRITON_CACHE_DIR": str(tmp_path / "tree" / "triton")}
