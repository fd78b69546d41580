"""JSON from files that others write: what a reader would stumble over later is refused at once.

Pure. Refused are lists without end, keys that stand twice, numbers that are none (NaN, Infinity,
1e999), and texts with what no terminal shows or no file can hold: control characters, half
surrogates, marks that turn the direction of writing. So every text that was read can be printed as
it stands.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from prewarm.plain_text import is_plain

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_CONTROL = frozenset("bfnrt")
_LAYOUT = str.maketrans("", "", "\n\r\t")

#: 10,000 entries with their proofs are 400,000 tables and lists; each takes some 200 bytes.
_MOST_TABLES = 1_000_000
_MOST_VALUES = 4_000_000


def parse_strictly(raw: bytes) -> Any:
    """Return the value of a JSON text in UTF-8.

    Raises:
        ValueError: it is none, or holds what is refused; in one line.
        RecursionError: it is nested without end.
    """
    # Before parsing, since endless lists take twenty times the room of their text.
    if raw.count(b"{") + raw.count(b"[") > _MOST_TABLES or raw.count(b",") > _MOST_VALUES:
        raise ValueError(f"it holds over {_MOST_TABLES:,} tables or {_MOST_VALUES:,} values")
    text = raw.decode()
    _check_texts(text)
    return json.loads(
        text,
        object_pairs_hook=_unique,
        parse_float=_finite,
        parse_constant=_finite,
    )


def _check_texts(text: str) -> None:
    # Line ends and tabs stand between values; within a text the parser refuses them.
    if not text.isprintable() and not is_plain(text.translate(_LAYOUT)):
        raise ValueError("a text holds what no terminal can show")
    if "\\" not in text:
        return
    for match in _ESCAPE.finditer(text):
        escaped = match[1]
        if escaped in _CONTROL or (len(escaped) > 1 and not is_plain(chr(int(escaped[1:], 16)))):
            raise ValueError(f"a text holds {match[0]}, which no terminal can show")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:60]!r} stands twice")
    return found


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:20]} is no JSON number")
    return number
