"""A Python that takes no shim: told, and a miss for a model that needs the shim."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from prewarm.deploy.kept_out import without_shim
from prewarm.deploy.outcome import Outcome
from prewarm.errors import NotWarm


def outcome(*requires: str) -> Outcome:
    entry = SimpleNamespace(requires=requires)
    started: Any = SimpleNamespace(model="m", published=SimpleNamespace(entry=entry))
    return Outcome({"A": "1"}, (started,), (), None, ("before",))


def test_without_such_a_flag_nothing_is_said() -> None:
    found = outcome("shim")
    assert without_shim(found, None, on_miss="fail") is found


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_a_model_that_is_warm_by_variables_alone_starts_with_a_word(flag: str) -> None:
    found = without_shim(outcome(), flag, on_miss="fail")
    assert found.misses == ()
    assert found.warnings[0] == "before" and f"with {flag} its Python" in found.warnings[1]


def test_a_model_that_needs_the_shim_is_a_miss() -> None:
    (miss,) = without_shim(outcome("shim"), "-I", on_miss="cold").misses
    assert (miss.model, miss.error.code) == ("m", "no_shim")
    with pytest.raises(NotWarm, match="m: with -I its Python is isolated") as told:
        without_shim(outcome("shim"), "-I", on_miss="fail")
    assert told.value.exit_code == 3


def test_nothing_started_misses_nothing_more() -> None:
    found = Outcome({}, (), (), None, ())
    assert without_shim(found, "-I", on_miss="fail") is found
