"""Text that a terminal, a log or a manifest can show as it stands.

Pure. What is not plain: control characters (they move the cursor and end lines), half surrogates
(no file or database takes them), and marks that turn the direction of writing.
"""

from __future__ import annotations

import re

_UNFIT = re.compile("[\0-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def is_plain(text: str) -> bool:
    """Say whether a text can be shown as it stands."""
    return text.isprintable() or _UNFIT.search(text) is None


def made_plain(text: str, instead: str) -> str:
    """Return a text with ``instead`` for each character that cannot be shown."""
    return text if text.isprintable() else _UNFIT.sub(instead, text)


def spelt_plain(text: str) -> str:
    r"""Return a text in which each such character is spelt out, such as ``\x1b``."""
    if text.isprintable():
        return text
    return _UNFIT.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
