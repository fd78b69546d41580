"""What the headers of a request say about the form of the answer. Pure.

Whether the reader has it already, and which encodings it takes (RFC 9110, 13.1.2 and 12.5.3).
"""

from __future__ import annotations

import re

#: Encodings that an answer may have, the better before the worse.
ENCODINGS = ("zstd", "gzip")

_WEIGHT = re.compile(r"q=([01](?:\.[0-9]{0,3})?)", re.IGNORECASE)


def has_already(if_none_match: str | None, etag: str) -> bool:
    """Whether the reader holds the answer of this entity tag."""
    if if_none_match is None:
        return False
    held = {one.strip().removeprefix("W/") for one in if_none_match.split(",")}
    return "*" in held or etag in held


def best_encoding(accept_encoding: str | None) -> str | None:
    """Return the best encoding that the reader takes, None for the plain text."""
    taken: dict[str, bool] = {}
    for one in (accept_encoding or "").lower().split(","):
        name, _, parameters = one.partition(";")
        weight = _WEIGHT.fullmatch(parameters.strip())
        taken[name.strip()] = weight is None or float(weight[1]) > 0
    return next((name for name in ENCODINGS if taken.get(name, taken.get("*", False))), None)
