"""Traces of readers: ``cache_dir/leases``, where a hook tells which bundles it reads and read.

Owns the two kinds of file there and how long they count.

- A lease, ``<sha256>.<random>.lease``, is there while a bundle is unpacked; one older than an hour
  is a dead reader's.
- A mark, ``<sha256>.used``, has the time of the last start from a bundle.
- All of it is as good as it gets: where a reader may not write, and where the builder made no such
  directory, nothing is left, and the grace period must do.
- The builder only looks at names and times. An administrator may open the directory to other users
  (mode 1777): the worst that a stranger can do in it is to keep a bundle.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

DEAD_AFTER_S = 3600.0

_NAME = re.compile(r"([0-9a-f]{64})\.(?:(?P<lease>[0-9a-f]{16}\.lease)|used)")


@dataclass(frozen=True, slots=True)
class Traces:
    """The bundles that are being read, when each was used last, and what dead readers left."""

    held: frozenset[str] = frozenset()
    used_s: Mapping[str, float] = field(default_factory=dict)
    dead: tuple[Path, ...] = ()

    def last_use_s(self, sha256: str) -> float:
        """Return when a start from a bundle left a mark; 0 if none did."""
        return self.used_s.get(sha256, 0.0)


NO_TRACES = Traces()


def leases_directory(cache_dir: Path) -> Path:
    """Return where readers leave their traces."""
    return cache_dir / "leases"


@contextmanager
def leased(bundles: Iterable[tuple[Path, str]]) -> Iterator[None]:
    """Hold leases on bundles, given by cache_dir and sha256, as far as this reader may."""
    held: list[Path] = []
    try:
        for cache_dir, sha256 in bundles:
            lease = leases_directory(cache_dir) / f"{sha256}.{secrets.token_hex(8)}.lease"
            with suppress(OSError):
                _touch(lease, os.O_EXCL)
                held.append(lease)
        yield
    finally:
        for lease in held:
            with suppress(OSError):
                lease.unlink()


def mark_used(bundles: Iterable[tuple[Path, str]]) -> None:
    """Leave a mark that a deployment starts from these bundles now, as far as this reader may."""
    for cache_dir, sha256 in bundles:
        mark = leases_directory(cache_dir) / f"{sha256}.used"
        with suppress(OSError):
            _touch(mark, 0)
            os.utime(mark, follow_symlinks=False)


def read_traces(cache_dir: Path, *, now_s: float, present: Iterable[str]) -> Traces:
    """Return what readers left; a mark of a bundle that is not ``present`` counts as dead."""
    there = frozenset(present)
    held: set[str] = set()
    used_s: dict[str, float] = {}
    dead: list[Path] = []
    for path, left_s in _listed(leases_directory(cache_dir)):
        match = _NAME.fullmatch(path.name)
        if match is None:
            continue
        if match["lease"] is not None:
            # Clocks of two machines differ; a time far ahead is as wrong as one long gone.
            alive = abs(now_s - left_s) < DEAD_AFTER_S
            held |= {match[1]} if alive else set()
            dead += [] if alive else [path]
        elif match[1] in there:
            used_s[match[1]] = min(left_s, now_s)
        else:
            dead.append(path)
    return Traces(frozenset(held), used_s, tuple(dead))


def _touch(path: Path, flags: int) -> None:
    # Whoever may write there may have put a link, which is not followed.
    flags |= os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    os.close(os.open(path, flags, 0o644))


def _listed(directory: Path) -> Iterator[tuple[Path, float]]:
    try:
        listing = os.scandir(directory)
    except OSError:
        return
    with listing:
        for found in listing:
            with suppress(OSError):
                told = found.stat(follow_symlinks=False)
                if stat.S_ISREG(told.st_mode):
                    yield Path(found.path), told.st_mtime
