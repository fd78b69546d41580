"""Which failures make the next mode worth a try."""

from __future__ import annotations

import pytest

from prewarm.build.ladder import fallback_reason, next_mode

MODES = ("max-autotune", "max-autotune-no-cudagraphs", "default")


@pytest.mark.parametrize("code", ["out_of_memory", "timeout", "memory_limit"])
def test_goes_down_one_by_one(code: str) -> None:
    failures = [("max-autotune", code)]
    assert next_mode(MODES, failures) == "max-autotune-no-cudagraphs"
    failures.append(("max-autotune-no-cudagraphs", code))
    assert next_mode(MODES, failures) == "default"
    failures.append(("default", code))
    assert next_mode(MODES, failures) is None


def test_a_kill_may_be_anybodys_so_each_mode_is_tried_once_more() -> None:
    failures: list[tuple[str, str]] = []
    tried = []
    mode: str | None = MODES[0]
    while mode is not None:
        tried.append(mode)
        failures.append((mode, "killed"))
        mode = next_mode(MODES, failures)
    assert tried == [mode for mode in MODES for _ in range(2)]


@pytest.mark.parametrize("code", ["raised", "cannot_import", "ended_early", "no_space"])
def test_other_failures_are_the_last_word(code: str) -> None:
    assert next_mode(MODES, [("max-autotune", code)]) is None


def test_the_reason_names_both_modes() -> None:
    reason = fallback_reason("max-autotune", "default", "no memory")
    assert "max-autotune" in reason and "default" in reason and "no memory" in reason
