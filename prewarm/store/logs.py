"""The logs of builds, ``state_dir/logs``: a file for each build, bounded in number and in all.

Owns their names and which go.

- Of an entry the last ``KEPT`` stay; a new build takes the oldest away.
- What no entry and no build names any more goes, and a probe's that led to nothing after a week.
- Over the limit of all, the oldest go; none of an entry under work, whatever its size.

How large one may become is ``build/child_log.py``'s.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

#: The last build and those before it: one that failed is compared with one that did not.
KEPT = 5

#: How much of a model's name stands in the name of its log; file names end at 255 bytes.
LONGEST_NAME_BYTES = 150

#: A probe is recorded only if it went well.
_PROBE_S = 7 * 86_400.0

_BEGAN = re.compile(r"-\d{8}T\d{6}\.\d{3}Z\.log$")


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log with its size and the time of its last line; ``why`` it goes, if it does."""

    path: Path
    size_bytes: int
    written_s: float
    why: str = ""


def log_of(directory: Path, model: str, environment_id: str, at: str) -> Path:
    """Return the file for the log of a build that begins at this time."""
    name = model.replace("%", "%25").replace("/", "%2F")
    if len(name.encode()) > LONGEST_NAME_BYTES:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        kept = name.encode()[:LONGEST_NAME_BYTES].decode(errors="ignore")
        name = f"{kept}-{digest}"
    began = at.replace("-", "").replace(":", "")
    return directory / f"{name}-{environment_id or 'none'}-{began}.log"


def earlier_logs(log: Path) -> tuple[Path, ...]:
    """Return the logs of the same entry that began before, oldest first."""
    entry = _BEGAN.sub("", log.name)
    found = [one.path for one in listed_logs(log.parent) if _BEGAN.sub("", one.path.name) == entry]
    return tuple(sorted(path for path in found if _BEGAN.search(path.name) and path < log))


def listed_logs(directory: Path) -> tuple[LogFile, ...]:
    """Return all logs, the oldest first."""
    logs: list[LogFile] = []
    with suppress(FileNotFoundError), os.scandir(directory) as listing:
        for found in listing:
            with suppress(FileNotFoundError):
                told = found.stat(follow_symlinks=False)
                if stat.S_ISREG(told.st_mode):
                    logs.append(LogFile(Path(found.path), told.st_size, told.st_mtime))
    return tuple(sorted(logs, key=lambda log: (log.written_s, log.path)))


def logs_going(
    logs: Iterable[LogFile],
    *,
    named: Collection[str],
    busy: Collection[str],
    limit_bytes: int,
    now_s: float,
) -> tuple[LogFile, ...]:
    """Return what goes of ``logs``, which are sorted, with the reason; pure. 0 is no limit.

    ``named`` and ``busy`` are names of files: a state directory may be reached by several paths.
    """
    staying: list[LogFile] = []
    going: list[LogFile] = []
    for log in logs:
        if _is_unnamed(log, named, now_s):
            going.append(replace(log, why="its build is not known any more"))
        else:
            staying.append(log)
    total_bytes = sum(log.size_bytes for log in staying)
    for log in staying:
        if not limit_bytes or total_bytes <= limit_bytes:
            break
        if log.path.name not in busy:
            going.append(replace(log, why="over logs_limit_bytes, the oldest"))
            total_bytes -= log.size_bytes
    return tuple(going)


def _is_unnamed(log: LogFile, named: Collection[str], now_s: float) -> bool:
    if log.path.name in named:
        return False
    return not log.path.name.startswith("probe-") or log.written_s < now_s - _PROBE_S
