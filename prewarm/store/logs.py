"""The logs of builds, ``state_dir/logs``: bounded in all, the oldest first.

Owns which go. A log of an entry under work stays, whatever its size.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log with its size and the time of its last line."""

    path: Path
    size_bytes: int
    written_s: float


def logs_over(
    directory: Path, *, limit_bytes: int, busy: Collection[Path] = ()
) -> tuple[LogFile, ...]:
    """Return the oldest logs that must go for the rest to be within the limit; 0 is no limit."""
    logs = sorted(_listed(directory), key=lambda log: (log.written_s, log.path))
    total_bytes = sum(log.size_bytes for log in logs)
    going: list[LogFile] = []
    for log in logs:
        if not limit_bytes or total_bytes <= limit_bytes:
            break
        if log.path not in busy:
            going.append(log)
            total_bytes -= log.size_bytes
    return tuple(going)


def _listed(directory: Path) -> list[LogFile]:
    logs: list[LogFile] = []
    with suppress(FileNotFoundError), os.scandir(directory) as listing:
        for found in listing:
            with suppress(FileNotFoundError):
                told = found.stat(follow_symlinks=False)
                if stat.S_ISREG(told.st_mode):
                    logs.append(LogFile(Path(found.path), told.st_size, told.st_mtime))
    return logs
