"""Choosing an entry: by name, alias, content, architecture, and the present environment."""

from __future__ import annotations

from typing import Any

import pytest

from prewarm.deploy.published import Published
from prewarm.deploy.select import (
    choose,
    named,
    not_published,
    with_architecture,
    with_checkpoint,
    without_own_variables,
)
from prewarm.environment import Environment
from prewarm.errors import EnvironmentDiffers
from prewarm.store.manifest import ManifestEntry
from prewarm.store.manifest_reading import Reading

FACTS: dict[str, str | None] = {
    "device": "cpu",
    "torch": "2.13.0+cpu",
    "cxx": "g++",
    "cxx_version": "g++ 12",
    "threads": "2",
    "variables": "{}",
}


def published(
    model: str = "minilm/v1", facts: dict[str, str | None] | None = None, **values: Any
) -> Published:
    generated_at = values.pop("generated_at", "2027-01-15T08:00:00.000Z")
    environment = Environment.from_facts(FACTS | (facts or {}))
    entry = {
        "model": model,
        "aliases": ["minilm/latest"],
        "checkpoint": "c" * 64,
        "architecture": "a" * 64,
        "environment": environment.id,
        "build_key": "k" * 64,
        "status": "warm",
        "reason": None,
        "code": None,
        "requires": [],
        "covers": "any order",
        "bundle": {"sha256": "b" * 64, "size_bytes": 1, "unpacked_bytes": 1, "files": 1},
        "compile": {"mode": "m", "asked_mode": "m", "dynamic": False, "recompile_limit": 8},
        "variables": {},
        "shape_sets": [],
        "proof": {},
    }
    reading = Reading()
    read = ManifestEntry.read(entry | values, "entry", reading)
    reading.refuse()
    return Published(read, environment, generated_at)


def told(present: dict[str, str | None], *candidates: Published) -> str:
    here = Environment.from_facts(FACTS | present)
    with pytest.raises(EnvironmentDiffers) as caught:
        choose("minilm/v1", candidates or (published(),), lambda _: here)
    return str(caught.value)


def test_a_model_is_found_by_name_alias_content_and_architecture() -> None:
    one, other = published(), published("gpt2", aliases=[], checkpoint="d" * 64)

    assert named((one, other), "minilm/v1") == (one,)
    assert named((one, other), "minilm/latest/") == (one,)
    assert named((one, other), "minilm") == ()
    assert with_checkpoint((one, other), "d" * 64) == (other,)
    assert with_architecture((one, other), "a" * 64) == (one, other)


def test_the_equal_environment_is_taken_warm_before_partial_newest_first() -> None:
    here = Environment.from_facts(FACTS)
    partial = published(status="partial", reason="r", generated_at="2027-02-01T00:00:00.000Z")
    older, newer = published(), published(generated_at="2027-01-20T00:00:00.000Z")
    other = published(facts={"torch": "2.12.1"})

    assert choose("m", (other, partial, older, newer), lambda _: here) is newer
    assert choose("m", (other, partial), lambda _: here) is partial


def test_the_differing_fact_is_named_with_both_values() -> None:
    line = told({}, published(facts={"torch": "2.12.1"}))

    assert "torch is 2.13.0+cpu here, the bundle was built with 2.12.1" in line


def test_the_nearest_environment_is_the_one_that_is_told() -> None:
    far = published(facts={"torch": "2.9.0", "threads": "64"})
    near = published(facts={"threads": "4"})

    line = told({}, far, near)

    assert "threads is 2 here, the bundle was built with 4" in line
    assert "2.9.0" not in line


def test_many_differences_are_three_and_the_rest_by_name() -> None:
    line = told({"torch": "1", "cxx": "clang", "threads": "9", "cpu_isa": "x", "device": "cuda"})

    assert line.endswith("; also different: cxx, threads")
    assert "\n" not in line


def test_another_device_is_told_once() -> None:
    gpu = {"device": "NVIDIA H200", "capability": "9.0", "sm_count": "132"}
    line = told({"device": None, "capability": None, "sm_count": None}, published(facts=gpu))

    assert "device is not there here, the bundle was built with NVIDIA H200" in line
    assert "; also different: capability, sm_count" in line


def test_a_missing_compiler_is_told_as_what_it_is() -> None:
    line = told({"cxx": None, "cxx_version": None})

    assert "no C++ compiler is here" in line
    assert "even on a perfect hit; install g++" in line


def test_a_compiler_that_does_not_run_is_told_as_what_it_is() -> None:
    line = told({"cxx_version": None})
    assert "the C++ compiler does not run here (built with g++ 12)" in line
    assert "even on a perfect hit; mend it or set CXX" in line

    line = told({"cxx": "wrapper", "cxx_version": None, "variables": '{"CXX": "wrapper"}'})
    assert "cxx is wrapper here" in line
    assert "the C++ compiler does not run here" in line


def test_a_compiler_that_is_named_and_not_there_is_told_by_its_name() -> None:
    line = told({"cxx": None, "cxx_version": None, "variables": '{"CXX": "clang-99"}'})

    assert "no C++ compiler is here" in line
    assert "CXX is 'clang-99' here" in line


def test_variables_that_the_env_file_sets_are_no_difference() -> None:
    entry = published(variables={"TORCHINDUCTOR_X": "1"})
    here = Environment.from_facts(FACTS | {"variables": '{"TORCHINDUCTOR_X": "1"}'})
    mine = Environment.from_facts(FACTS | {"variables": '{"TORCHINDUCTOR_Y": "1"}'})

    assert without_own_variables(here, entry) == entry.environment
    assert without_own_variables(mine, entry) is mine


def test_only_the_variables_that_differ_are_told_with_both_values() -> None:
    recorded = published(facts={"variables": '{"TORCHINDUCTOR_X": "1", "TRITON_Y": "a"}'})

    line = told(
        {"variables": '{"CXX": "g++-13", "TORCHINDUCTOR_X": "1", "TRITON_Y": "b"}'}, recorded
    )

    assert line.startswith(
        "minilm/v1: CXX is 'g++-13' here, the bundle was built without it (cost: a full compile "
        "where the variable is part of the key); TRITON_Y is 'b' here, the bundle was built with "
        "'a' (cost: "
    )
    assert "TRITON_Y is not set here" in told({}, recorded)


def test_an_unknown_model_is_told_with_the_nearest_name() -> None:
    assert "did you mean minilm/v1?" in str(not_published("minilm/v9", (published(),)))
    assert "nothing is published yet" in str(not_published("x", ()))
    assert "3 names are published" in str(
        not_published("zzz", (published(), published("gpt2", aliases=[])))
    )
    assert not_published("x", ()).exit_code == 3
