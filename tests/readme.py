"""Blocks of README.md, for tests that run what stands in it."""

from __future__ import annotations

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def block_with(text: str, language: str) -> str:
    """Return the one block of a language that holds a text."""
    found = [body for kind, body in _BLOCK.findall(README) if kind == language and text in body]
    assert len(found) == 1, f"README.md has {len(found)} blocks of {language} with {text!r}"
    return found[0]
