from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prewarm.store.timestamp import epoch_seconds, is_timestamp, timestamp

from ..properties import bounded

_SECONDS = st.floats(min_value=0, max_value=4e9)


def test_timestamp_is_utc_with_milliseconds() -> None:
    assert timestamp(0) == "1970-01-01T00:00:00.000Z"
    assert timestamp(1_800_000_000.5) == "2027-01-15T08:00:00.500Z"


@bounded
@given(_SECONDS, _SECONDS)
def test_text_order_is_time_order(one: float, other: float) -> None:
    if abs(one - other) > 0.002:
        assert (timestamp(one) < timestamp(other)) is (one < other)


@bounded
@given(_SECONDS)
def test_epoch_seconds_reads_what_timestamp_wrote(second: float) -> None:
    assert is_timestamp(timestamp(second))
    assert abs(epoch_seconds(timestamp(second)) - second) < 0.002


def test_is_timestamp_refuses_other_iso_texts() -> None:
    for text in ("2027-01-15T08:00:00Z", "2027-01-15T08:00:00.500+00:00", "", "now"):
        assert not is_timestamp(text)
    for text in (
        "2027-13-15T08:00:00.000Z",
        "2027-01-15T25:00:00.000Z",
        "٢٠٢٧-01-15T08:00:00.000Z",
    ):
        assert not is_timestamp(text)
