"""Times as text: ISO-8601, UTC, always milliseconds and ``Z``, so that text order is time order.

Owns the one format of the database and the manifest. Reads no clock; the caller passes seconds in.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

_FORMAT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)


def timestamp(epoch_s: float) -> str:
    """Turn seconds since the epoch into text, e.g. ``2026-11-30T04:16:26.000Z``."""
    moment = datetime.fromtimestamp(epoch_s, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def epoch_seconds(text: str) -> float:
    """Turn such a text back into seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def is_timestamp(text: str) -> bool:
    """Whether ``text`` has exactly the format of ``timestamp`` and names a time."""
    if _FORMAT.fullmatch(text) is None:
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
