"""Which failures make the next mode worth a try."""

from __future__ import annotations

import pytest

from prewarm.build.ladder import fallback_reason, next_mode

MODES = ("max-autotune", "max-autotune-no-cudagraphs", "default")


@pytest.mark.parametrize("code", ["out_of_memory", "timeout", "memory_limit", "killed"])
def test_goes_down_one_by_one(code: str) -> None:
    assert next_mode(MODES, "max-autotune", code) == "max-autotune-no-cudagraphs"
    assert next_mode(MODES, "max-autotune-no-cudagraphs", code) == "default"
    assert next_mode(MODES, "default", code) is None


@pytest.mark.parametrize("code", ["raised", "cannot_import", "ended_early", "no_space"])
def test_other_failures_are_the_last_word(code: str) -> None:
    assert next_mode(MODES, "max-autotune", code) is None


def test_the_reason_names_both_modes() -> None:
    reason = fallback_reason("max-autotune", "default", "no memory")
    assert "max-autotune" in reason and "default" in reason and "no memory" in reason
