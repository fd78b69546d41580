"""The header ``Range`` of HTTP (RFC 9110, 14.2), as far as a bundle is asked for in parts. Pure.

What is no single range of bytes is passed over, as the standard has it: the answer is the whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SINGLE = re.compile(r"bytes=[ \t]*([0-9]*)-([0-9]*)[ \t]*", re.IGNORECASE)

#: More digits than any file's size has; int() of very many is slow, then refused.
_MOST_DIGITS = 18


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Some bytes of a file, at least one, from the first to the last."""

    first: int
    last: int

    @property
    def size_bytes(self) -> int:
        """How many they are."""
        return self.last - self.first + 1


class RangeOutside(ValueError):
    """The file has none of the bytes that were asked for."""


def parse_range(header: str | None, size_bytes: int) -> ByteRange | None:
    """Return the bytes that are asked for, None for the whole file.

    Raises:
        RangeOutside: the file has none of them.
    """
    match = _SINGLE.fullmatch(header) if header is not None else None
    if match is None or match[1] == match[2] == "":
        return None
    first, last = _number(match[1]), _number(match[2])
    if first is None:
        # The last so many bytes.
        found = ByteRange(max(0, size_bytes - (last or 0)), size_bytes - 1)
    elif last is not None and last < first:
        return None
    else:
        end = size_bytes - 1
        found = ByteRange(first, end if last is None else min(last, end))
    if found.size_bytes < 1:
        raise RangeOutside(f"{header} of {size_bytes} bytes")
    return found


def _number(digits: str) -> int | None:
    if not digits:
        return None
    significant = digits.lstrip("0")
    return 10**_MOST_DIGITS if len(significant) > _MOST_DIGITS else int(significant or "0")
