from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prewarm.serve.byte_range import ByteRange, RangeOutside, parse_range

from ..properties import bounded

SIZE = 100


@pytest.mark.parametrize(
    ("header", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=0-99", 0, 99),
        ("bytes=10-", 10, 99),
        ("bytes=-10", 90, 99),
        ("bytes=-1000", 0, 99),
        ("bytes=90-1000", 90, 99),
        ("Bytes= 007-8 ", 7, 8),
        (f"bytes=5-{'9' * 5000}", 5, 99),
    ],
)
def test_a_single_range_is_taken_as_far_as_the_file_goes(
    header: str, first: int, last: int
) -> None:
    assert parse_range(header, SIZE) == ByteRange(first, last)


@pytest.mark.parametrize(
    "header",
    [
        None, "", "bytes", "bytes=", "bytes=-", "bytes=5", "bytes=9-3", "bytes=1-2,4-5",
        "lines=1-2", "bytes=a-b", "bytes=1--2", "bytes=+1-2", "bytes=1_0-20", "bytes=٣-٤",
        "bytes=0-1\n",
    ],
)  # fmt: skip
def test_what_is_no_single_range_means_the_whole(header: str | None) -> None:
    assert parse_range(header, SIZE) is None


@pytest.mark.parametrize(
    "header", ["bytes=100-", "bytes=100-200", "bytes=-0", f"bytes={'9' * 30}-"]
)
def test_a_range_behind_the_end_is_told(header: str) -> None:
    with pytest.raises(RangeOutside):
        parse_range(header, SIZE)


@pytest.mark.parametrize("header", ["bytes=0-", "bytes=0-0", "bytes=-5"])
def test_an_empty_file_has_no_part(header: str) -> None:
    with pytest.raises(RangeOutside):
        parse_range(header, 0)


@bounded
@given(
    first=st.none() | st.integers(0, 300),
    last=st.none() | st.integers(0, 300),
    size=st.integers(0, 200),
)
def test_a_range_selects_what_a_slice_does(first: int | None, last: int | None, size: int) -> None:
    content = bytes(number % 251 for number in range(size))
    header = f"bytes={'' if first is None else first}-{'' if last is None else last}"
    if first is None:
        expected = content[-last:] if last else b""
    else:
        expected = content[first:] if last is None else content[first : last + 1]
    try:
        found = parse_range(header, size)
    except RangeOutside:
        assert expected == b""
    else:
        if found is None:
            assert first is last is None or (None not in (first, last) and last < first)  # type: ignore[operator]
        else:
            assert content[found.first : found.last + 1] == expected
            assert found.size_bytes == len(expected) > 0


@bounded
@given(
    header=st.text(max_size=40) | st.from_regex(r"bytes=[0-9,\- ]{0,30}"), size=st.integers(0, 50)
)
def test_any_header_gives_a_part_of_the_file_the_whole_or_none(header: str, size: int) -> None:
    try:
        found = parse_range(header, size)
    except RangeOutside:
        return
    assert found is None or 0 <= found.first <= found.last < size
