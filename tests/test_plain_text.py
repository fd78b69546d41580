"""Plain text: what may reach a terminal, a log and a manifest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prewarm.errors import PrewarmError
from prewarm.plain_text import is_plain, made_plain, spelt_plain

from .properties import bounded


@pytest.mark.parametrize(
    "text", ["", "minilm/v1", "naïve 模型", "a\u00a0b", "👩\u200d💻", "a\\x1bb"]
)
def test_text_of_people_is_plain(text: str) -> None:
    assert is_plain(text)
    assert made_plain(text, "?") == spelt_plain(text) == text


@pytest.mark.parametrize(
    ("text", "spelt"),
    [
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\0b", "a\\x00b"),
        ("a\nb", "a\\nb"),
        ("a\x9bb", "a\\x9bb"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u2028b", "a\\u2028b"),
        ("a\ud800b", "a\\ud800b"),
    ],
)
def test_what_a_terminal_would_act_on_is_not(text: str, spelt: str) -> None:
    assert not is_plain(text)
    assert spelt_plain(text) == spelt
    assert made_plain(text, "?") == text.replace(text[1], "?")


@bounded
@given(st.text(st.characters(exclude_categories=())))
def test_whatever_is_told_in_an_error_is_one_plain_line(text: str) -> None:
    told = str(PrewarmError(f"{text}: is wrong"))
    assert is_plain(told)
    assert told.splitlines() == [told]
    told.encode()
