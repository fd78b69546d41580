from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prewarm.deploy.toml_text import toml_pair

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
_VALUES = st.recursive(
    st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | _TEXTS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(_TEXTS, below, max_size=3),
    max_leaves=8,
)


@given(_TEXTS, _VALUES)
def test_what_is_written_is_read_again(name: str, value: Any) -> None:
    assert tomllib.loads(toml_pair(name, value)) == {name: value}


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ({"dtype": "int64", "shape": ["batch", 4], "high": None, "fill": 1},
         'x = { dtype = "int64", shape = ["batch", 4], fill = 1 }'),
        ({}, "x = {}"), ({"odd key": True}, 'x = { "odd key" = true }'),
        ("\x1b[31m\x7f\n", 'x = "\\u001b[31m\\u007f\\n"'),
    ],
)  # fmt: skip
def test_lines_are_as_people_write_them(value: Any, line: str) -> None:
    assert toml_pair("x", value) == line
