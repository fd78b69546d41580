"""JSON from strangers: what a reader would stumble over later is refused at once."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prewarm.plain_text import is_plain
from prewarm.store.manifest_text import canonical_json, without_paths
from prewarm.store.strict_json import parse_strictly

from ..properties import bounded

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(), below, max_size=4),
    max_leaves=20,
)  # fmt: skip


@bounded
@given(VALUES)
def test_what_prewarm_writes_is_read_as_it_was(value: object) -> None:
    plain = without_paths(value)
    assert parse_strictly(canonical_json(plain)) == plain


@bounded
@given(VALUES, st.booleans())
def test_what_is_read_from_others_can_be_written_and_shown(value: object, ascii_only: bool) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only, indent=1).encode(errors="replace")
    try:
        found = parse_strictly(raw)
    except ValueError as error:
        assert "\n" not in str(error)
        return
    assert is_plain(canonical_json(found).decode())


@bounded
@given(
    st.binary(max_size=200) | st.text('{}[]":,0123456789eE.-\\u aNI', max_size=60).map(str.encode)
)
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        parse_strictly(raw)
    except ValueError as error:
        assert is_plain(str(error)), error


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b'{"a": 1, "a": 2}', "the key 'a' stands twice"),
        (b'{"a": {"b": 1, "c": 2, "b": 3}}', "the key 'b' stands twice"),
        (b"[NaN]", "NaN is no JSON number"),
        (b"[-Infinity]", "-Infinity is no JSON number"),
        (b"[1e999]", "1e999 is no JSON number"),
        (b"[" + b"9" * 5000 + b"]", "digits"),
        (b'["\\ud800"]', r"holds \\ud800, which"),
        (b'["a\\u001b[2J"]', r"holds \\u001b, which"),
        (b'["a\\nb"]', r"holds \\n, which"),
        (b'["a\\u202eb"]', r"holds \\u202e, which"),
        ('["a\u202eb"]'.encode(), "what no terminal can show"),
        (b'["a\x7fb"]', "what no terminal can show"),
        (b'\xef\xbb\xbf["a"]', "Expecting value|BOM"),
        (b'["\xed\xa0\x80"]', "utf-8"),
        (b'{"a": 1} {"b": 2}', "Extra data"),
    ],
)
def test_what_is_refused_is_told(raw: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_strictly(raw)


def test_backslashes_of_a_text_are_no_escapes() -> None:
    assert parse_strictly(rb'["a\\nb", "\"", "\u00fc", "a\/b"]') == ["a\\nb", '"', "ü", "a/b"]


@pytest.mark.parametrize("part", [b"[],", b"{},", b'{"a":[0]},', b"0,", b'"aa",'])
def test_endless_lists_are_refused_before_they_take_room(part: bytes) -> None:
    raw = b"[" + part * ((40 << 20) // len(part))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="it holds over"):
            parse_strictly(raw)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
