"""Collecting: bundles that no manifest names any more, and what dead writers left in ``cache_dir``.

Owns what may be removed and when. Scratch of the state directory is the builder's own to clear.

- A bundle goes when no manifest of any builder has named it for the grace period, since a hook may
  still read an older manifest. Since when it is unnamed is kept in the state directory: its own
  time says only when it was published. The note is written before anything is removed, and a lost
  note begins the period anew, so a crash only ever removes later.
- If any manifest cannot be read, nothing is removed: it may name anything.
- ``keep_bundle`` starts the period anew for one that a builder is about to name again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from prewarm.errors import StoreCorrupt
from prewarm.store.bundle_format import bundle_path
from prewarm.store.manifest_files import manifests_directory, read_manifests
from prewarm.store.whole_file import is_part, make_directory, write_error, write_whole

UNNAMED_NAME = "unnamed.json"

_BUNDLE = re.compile(r"([0-9a-f]{64})\.tar\.zst")


@dataclass(frozen=True, slots=True)
class Collected:
    """What was removed; ``problem`` says why something that should go is still there."""

    bundles: tuple[str, ...] = ()
    leftovers: int = 0
    freed_bytes: int = 0
    waiting: int = 0
    problem: str | None = None


def collect(cache_dir: Path, state_dir: Path, *, now_s: float, grace_s: float) -> Collected:
    """Remove what nobody names any more once its grace period is over; hold the state lock for it.

    What cannot be removed, another user's say, is a problem in the answer, not an error.

    Raises:
        NotWritable: the state directory cannot be written.
        NoSpace: no space left for the note in it.
    """
    present = dict(_bundles(cache_dir))
    named, problem = _named(cache_dir)
    if problem is not None:
        return Collected(problem=problem)
    since_s = _unnamed_since(state_dir, present, named, now_s)
    _note(state_dir, since_s)
    doomed = [sha256 for sha256, start_s in since_s.items() if now_s - start_s >= grace_s]
    if doomed:
        # Another builder may have published in the meantime.
        named, problem = _named(cache_dir)
        if problem is not None:
            return Collected(waiting=len(since_s), problem=problem)
        doomed = [sha256 for sha256 in doomed if sha256 not in named]
    removal = _Removal()
    removed = [sha256 for sha256 in sorted(doomed) if removal.remove(present[sha256])]
    leftovers = sum(map(removal.remove, _leftovers(cache_dir, now_s=now_s, grace_s=grace_s)))
    return Collected(
        bundles=tuple(removed),
        leftovers=leftovers,
        freed_bytes=removal.freed_bytes,
        waiting=len(since_s) - len(removed),
        problem=removal.problem,
    )


def keep_bundle(cache_dir: Path, sha256: str, *, now_s: float) -> Path:
    """Return the path of a bundle that is about to be named again, kept for another grace period.

    Raises:
        StoreCorrupt: it is gone.
    """
    path = bundle_path(cache_dir, sha256)
    try:
        os.utime(path, (now_s, now_s))
    except PermissionError:
        # Another user's bundle, which that user's builder keeps.
        return path
    except OSError as error:
        raise StoreCorrupt(f"{path}: is gone ({error.strerror}); build it again") from None
    return path


def _named(cache_dir: Path) -> tuple[frozenset[str], str | None]:
    manifests, problems = read_manifests(cache_dir)
    if problems:
        return frozenset(), f"nothing is collected while a manifest cannot be read: {problems[0]}"
    return frozenset(
        entry.bundle.sha256 for found in manifests for entry in found.manifest.entries
    ), None


def _bundles(cache_dir: Path) -> Iterator[tuple[str, Path]]:
    for folder in _listed(cache_dir / "bundles" / "sha256"):
        for path in _listed(folder):
            if match := _BUNDLE.fullmatch(path.name):
                yield match[1], path


def _unnamed_since(
    state_dir: Path, present: Mapping[str, Path], named: frozenset[str], now_s: float
) -> dict[str, float]:
    noted = _read_note(state_dir)
    since_s: dict[str, float] = {}
    for sha256, path in present.items():
        if sha256 in named:
            continue
        try:
            published_s = path.stat().st_mtime
        except FileNotFoundError:
            continue
        # Published again after it was noted: a new period. A clock that was set back: from now on.
        since_s[sha256] = min(now_s, max(noted.get(sha256, now_s), published_s))
    return since_s


def _read_note(state_dir: Path) -> dict[str, float]:
    try:
        note = json.loads((state_dir / UNNAMED_NAME).read_bytes())
        return {str(sha256): float(since_s) for sha256, since_s in note.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _note(state_dir: Path, since_s: Mapping[str, float]) -> None:
    if not since_s and not (state_dir / UNNAMED_NAME).exists():
        return
    make_directory(state_dir)
    write_whole(state_dir / UNNAMED_NAME, json.dumps(since_s, sort_keys=True).encode())


def _leftovers(cache_dir: Path, *, now_s: float, grace_s: float) -> Iterator[Path]:
    digests = cache_dir / "bundles" / "sha256"
    folders = [manifests_directory(cache_dir), cache_dir, cache_dir / "bundles", digests]
    for folder in (*folders, *_listed(digests)):
        for path in _listed(folder):
            # A writer at work touches its file all the time, so the grace period tells it apart.
            with suppress(FileNotFoundError):
                if is_part(path.name) and now_s - path.stat().st_mtime >= grace_s:
                    yield path


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


class _Removal:
    """Removes files, counts their bytes, and keeps the first failure."""

    def __init__(self) -> None:
        self.freed_bytes = 0
        self.problem: str | None = None

    def remove(self, path: Path) -> bool:
        try:
            size_bytes = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            self.problem = self.problem or str(write_error(error, path))
            return False
        self.freed_bytes += size_bytes
        return True
