"""The text of a manifest: canonical JSON, and no absolute path in it.

Pure. Owns the one byte form that is signed, and the rule that a manifest says nothing about the
builder's machine: digests name content, and paths in reasons keep their last part alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from prewarm.plain_text import made_plain

# A slash that begins a word begins an absolute path; one inside a word (minilm/v1, 8/16) or in a
# URL does not. Quotes, brackets and the like may stand before it.
_BEFORE = r"(?<![\w.\-~/…])"
_PART = r"[^\s/'\"`<>(){}\[\],;:|]+"
_ABSOLUTE = re.compile(rf"{_BEFORE}/(?:{_PART}/)*({_PART})/?")


def canonical_json(signed: Any) -> bytes:
    """Return the bytes that a signature is over: sorted keys, no spaces, UTF-8, no NaN."""
    return json.dumps(
        signed, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def without_paths(value: Any) -> Any:
    """Return a JSON value in which each absolute path is cut down to ``…/`` and its last part.

    And in which every text is plain, since readers refuse what is not.
    """
    if isinstance(value, str):
        value = made_plain(value, " ")
        return _ABSOLUTE.sub(r"…/\1", value) if "/" in value else value
    if isinstance(value, dict):
        return {without_paths(name): without_paths(below) for name, below in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(below) for below in value]
    return value


def paths_in(value: Any, home: str) -> Iterator[str]:
    """Yield each text that begins with a slash or holds the home directory."""
    if isinstance(value, str):
        if value.startswith("/") or (home in value and _stands_in(home, value)):
            yield value
    elif isinstance(value, dict):
        for name, below in value.items():
            yield from paths_in(name, home)
            yield from paths_in(below, home)
    elif isinstance(value, list | tuple):
        for below in value:
            yield from paths_in(below, home)


def _stands_in(home: str, text: str) -> bool:
    return len(home) > 1 and re.search(rf"{_BEFORE}{re.escape(home)}(?:/|$)", text) is not None
