"""Memory that is free inside the process, given back to the system.

A service works in several threads, each of which leaves the C library pieces of what it used at its
peak; they are used again, but until then they count as the service's.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress


def give_memory_back() -> None:
    """Give it back where the C library can; musl's, say, cannot."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
