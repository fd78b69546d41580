"""Choosing by given facts, where the server's machine cannot be seen."""

from __future__ import annotations

from typing import Any

import pytest

from prewarm.deploy.given_facts import choose_for
from prewarm.deploy.published import Published
from prewarm.errors import ConfigError, EnvironmentDiffers

from .test_select import published

H200: dict[str, str | None] = {"device": "NVIDIA H200", "capability": "9.0"}
A100: dict[str, str | None] = {"device": "NVIDIA A100", "capability": "8.0"}
CANDIDATES = (
    published(facts=H200),
    published(facts=H200 | {"torch": "2.12.1"}),
    published(facts=A100 | {"variables": '{"CXX": "clang++"}'}),
)


def chosen(*candidates: Published, **facts: str) -> Published:
    return choose_for("minilm/v1", candidates or CANDIDATES, facts)


def refused(**facts: str) -> EnvironmentDiffers:
    with pytest.raises(EnvironmentDiffers) as caught:
        chosen(**facts)
    assert caught.value.exit_code == 4
    return caught.value


def test_the_environment_with_these_facts_is_chosen() -> None:
    assert chosen(device="NVIDIA A100") is CANDIDATES[2]
    assert chosen(torch="2.12.1") is CANDIDATES[1]
    assert chosen(capability="9.0", torch="2.13.0+cpu") is CANDIDATES[0]


def test_a_variable_is_a_fact_and_an_empty_value_is_none() -> None:
    assert chosen(CXX="clang++") is CANDIDATES[2]
    assert chosen(CXX="", torch="2.12.1") is CANDIDATES[1]


@pytest.mark.parametrize(
    "values",
    [
        ({}, {"generated_at": "2028-01-15T08:00:00.000Z"}),
        ({"status": "partial", "reason": "r", "generated_at": "2028-01-15T08:00:00.000Z"}, {}),
    ],
)
def test_of_one_environment_warm_goes_before_partial_and_newer_before_older(
    values: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    candidates = [published(facts=H200, **one) for one in values]

    assert chosen(*candidates, device="NVIDIA H200") is candidates[1]


def test_several_environments_are_told_apart() -> None:
    error = refused(device="NVIDIA H200")

    assert error.code == "environment_unclear"
    assert "add --for torch=2.12.1; or --for torch=2.13.0+cpu" in str(error)


def test_a_value_that_is_nowhere_is_told_with_those_that_are() -> None:
    error = refused(device="NVIDIA B200")

    assert error.code == "environment_differs"
    assert "no environment with device NVIDIA B200 is published" in str(error)
    assert "device is NVIDIA A100 or NVIDIA H200 there" in str(error)
    assert "no threads" in str(refused(threads=""))


def test_values_that_stand_together_nowhere_are_told() -> None:
    error = refused(device="NVIDIA A100", torch="2.12.1")

    assert "no one environment with device NVIDIA A100, torch 2.12.1" in str(error)


def test_a_misspelt_fact_is_told() -> None:
    with pytest.raises(ConfigError, match=r"--for devise: is no fact.*did you mean device"):
        chosen(devise="NVIDIA H200")
