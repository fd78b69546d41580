"""The garbage collector is held back for a stretch, and afterwards is as it was found."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterator
from typing import Any

import pytest

from prewarm.torchside.collector import THRESHOLD, Quiet, quiet_frames


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    before, enabled = gc.get_threshold(), gc.isenabled()
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)
    (gc.enable if enabled else gc.disable)()


def test_a_stretch_freezes_and_raises_and_puts_both_back() -> None:
    before, quiet = gc.get_threshold(), Quiet()
    quiet.begin()
    assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == (THRESHOLD, *before[1:])
    quiet.end()
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == before


def test_the_last_one_out_puts_everything_back() -> None:
    before, quiet = gc.get_threshold(), Quiet()
    quiet.begin()
    quiet.begin()
    quiet.end()
    assert gc.get_threshold()[0] == THRESHOLD
    quiet.end()
    assert gc.get_threshold() == before


def test_an_end_too_many_does_no_harm() -> None:
    before, quiet = gc.get_threshold(), Quiet()
    quiet.end()
    quiet.begin()
    quiet.end()
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_what_a_server_froze_stays_frozen() -> None:
    gc.freeze()
    count, quiet = gc.get_freeze_count(), Quiet()
    quiet.begin()
    quiet.end()
    assert gc.get_freeze_count() == count


def test_a_collector_that_is_off_stays_as_it_is() -> None:
    gc.disable()
    before, quiet = gc.get_threshold(), Quiet()
    quiet.begin()
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
    quiet.end()
    assert not gc.isenabled()


def test_what_a_server_set_meanwhile_stays() -> None:
    quiet = Quiet()
    quiet.begin()
    gc.set_threshold(555, 5, 5)
    quiet.end()
    assert gc.get_threshold() == (555, 5, 5)


@pytest.mark.parametrize("own", [0, THRESHOLD * 2])
def test_a_threshold_that_is_higher_or_off_is_not_lowered(own: int) -> None:
    gc.set_threshold(own, 10, 10)
    quiet = Quiet()
    quiet.begin()
    assert gc.get_threshold()[0] == own
    quiet.end()
    assert gc.get_threshold()[0] == own


def test_each_frame_is_a_stretch_also_one_that_raises() -> None:
    module: Any = types.ModuleType("convert_frame")
    before = gc.get_threshold()

    def _compile(code: str, *, fail: bool) -> int:
        if fail:
            raise ValueError(code)
        return gc.get_threshold()[0]

    module._compile = _compile
    assert quiet_frames(module)
    assert module._compile("code", fail=False) == THRESHOLD
    with pytest.raises(ValueError, match="code"):
        module._compile("code", fail=True)
    assert gc.get_threshold() == before


def test_a_release_without_the_place_is_left_alone() -> None:
    assert not quiet_frames(types.ModuleType("convert_frame"))
