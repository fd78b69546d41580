"""Variables that keep a bundle from being read, by the values that torch and Triton go by."""

from __future__ import annotations

import pytest

from prewarm.deploy.fatal_variables import fatal_variables, other_directories, without_fatal
from prewarm.environment import Environment

TREE = "/run/m/" + "0a" * 16


@pytest.mark.parametrize(
    ("name", "fatal", "fine"),
    [
        ("TORCHDYNAMO_DISABLE", ["1"], ["0", "", "true"]),
        ("TORCH_COMPILE_DISABLE", ["1"], ["0", ""]),
        ("TORCHINDUCTOR_FORCE_DISABLE_CACHES", ["1", "true", "False"], ["0", ""]),
        ("TORCH_COMPILE_FORCE_DISABLE_CACHES", ["1"], ["0", ""]),
        ("TORCHINDUCTOR_FX_GRAPH_CACHE", ["0", ""], ["1", "x"]),
        ("TORCHINDUCTOR_FX_GRAPH_CACHE_DEFAULT", ["0"], ["1"]),
        ("TORCHINDUCTOR_AUTOGRAD_CACHE", ["0", ""], ["1"]),
        ("TRITON_ALWAYS_COMPILE", ["1", "true", "ON"], ["0", "false", ""]),
        ("TRITON_INTERPRET", ["1", "yes"], ["0", ""]),
        ("TRITON_CACHE_MANAGER", ["pkg:Manager"], [""]),
    ],
)
def test_only_the_values_that_switch_something_off_are_fatal(
    name: str, fatal: list[str], fine: list[str]
) -> None:
    for value in fatal:
        [found] = fatal_variables({name: value, "HOME": "/"})
        assert (found.fact, found.present, found.recorded) == (name, value, None)
        assert found.cost
    assert [value for value in fine if fatal_variables({name: value})] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1"),
        ("TORCH_COMPILE_FORCE_DISABLE_CACHES", "yes"),
        ("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "0"),
        ("TORCHINDUCTOR_FX_GRAPH_CACHE", "0"),
        ("TORCHINDUCTOR_FX_GRAPH_CACHE", ""),
        ("TORCHINDUCTOR_AUTOGRAD_CACHE", "0"),
        ("TORCHINDUCTOR_AUTOGRAD_CACHE", "1"),
    ],
)
def test_torch_reads_these_values_alike(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """Read as torch's config modules do, so that a release which reads them otherwise is told."""
    from torch.utils._config_module import _read_env_variable

    monkeypatch.setenv(name, value)
    is_on = bool(_read_env_variable(name))

    assert bool(fatal_variables({name: value})) == (is_on if "DISABLE" in name else not is_on)


def test_triton_s_variables_are_nothing_on_a_cpu() -> None:
    environ = {"TRITON_ALWAYS_COMPILE": "1", "TORCH_COMPILE_DISABLE": "1"}

    assert [one.fact for one in fatal_variables(environ, device="cpu")] == ["TORCH_COMPILE_DISABLE"]


def test_what_prewarm_sets_itself_is_none() -> None:
    eager = {"TORCHDYNAMO_DISABLE": "1"}

    assert fatal_variables(eager, own=eager) == ()
    assert fatal_variables(eager) != ()


def test_a_cache_directory_is_another_one_unless_it_is_a_private_tree() -> None:
    mine = {"TORCHINDUCTOR_CACHE_DIR": TREE + "/inductor", "TRITON_CACHE_DIR": TREE + "/triton/"}
    others = {"TORCHINDUCTOR_CACHE_DIR": "/tmp/torchinductor_root", "TRITON_CACHE_DIR": ""}

    assert other_directories(mine) == ()
    [found] = other_directories(others)
    assert (found.fact, found.present) == ("TORCHINDUCTOR_CACHE_DIR", "/tmp/torchinductor_root")


def test_a_fatal_variable_is_no_fact_of_the_environment_any_more() -> None:
    fatal = fatal_variables({"TORCHINDUCTOR_FX_GRAPH_CACHE": "0"})
    variables = '{"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_X": "1"}'
    here = Environment.from_facts({"variables": variables})

    assert without_fatal(here, fatal).get("variables") == '{"TORCHINDUCTOR_X": "1"}'
