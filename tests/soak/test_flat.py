from __future__ import annotations

import pytest

from .flat import Tolerance, courses

TEN_PERCENT = {"x": Tolerance(0.1, 1.0)}


def course(values: list[float]):
    [found] = courses([{"x": value} for value in values], TEN_PERCENT)
    return found


def test_what_grows_is_not_flat_and_what_is_steady_is() -> None:
    assert course([100.0] * 40).is_flat
    assert course([100.0] * 20 + [110.0] * 20).is_flat
    assert not course([100.0] * 20 + [112.0] * 20).is_flat
    assert not course([float(100 + number) for number in range(40)]).is_flat


def test_one_peak_and_the_first_quarter_do_not_count() -> None:
    found = course([0.0] * 10 + [100.0] * 29 + [900.0])
    assert (found.is_flat, found.most, found.allowed) == (True, 900.0, pytest.approx(111.0))


def test_too_few_samples_say_nothing() -> None:
    with pytest.raises(ValueError, match="19 samples"):
        course([1.0] * 19)
