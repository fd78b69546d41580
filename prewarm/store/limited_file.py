"""Reading of small files where others may have put something else: a pipe, a device, no end.

Owns the limit and the kind of a file; what stands in it is for the caller.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_limited_file(path: Path, limit_bytes: int) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no regular file, or larger than ``limit_bytes``.
    """
    # Not to wait for the writer of a pipe that somebody put there.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("is no file")
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise ValueError(f"is larger than {limit_bytes:,} bytes")
    return data
