"""Collecting: bundles that no manifest names any more, and what dead writers left in ``cache_dir``.

Owns the look at the directory and the removing; what goes stands in ``collect_plan.py``. Scratch of
the state directory is the builder's own to clear.

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
from prewarm.store.collect_plan import Bounds, BundleFacts, Use, plan
from prewarm.store.leases import NO_TRACES, Traces, read_traces
from prewarm.store.manifest_files import manifests_directory, read_manifests
from prewarm.store.whole_file import is_part, make_directory, write_error, write_whole

UNNAMED_NAME = "unnamed.json"

_BUNDLE = re.compile(r"([0-9a-f]{64})\.tar\.zst")


@dataclass(frozen=True, slots=True)
class Cache:
    """What lies in a cache_dir; ``problem`` says why nothing in it can be judged."""

    bundles: tuple[BundleFacts, ...] = ()
    leftovers: tuple[tuple[Path, int], ...] = ()
    traces: Traces = NO_TRACES
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Collected:
    """What was removed; ``problem`` says why something that should go is still there."""

    bundles: tuple[str, ...] = ()
    leftovers: int = 0
    freed_bytes: int = 0
    waiting: int = 0
    problem: str | None = None


def look_at_cache(
    cache_dir: Path, state_dir: Path, *, now_s: float, grace_s: float, builder: str | None = None
) -> Cache:
    """Look at what lies in ``cache_dir`` and who names it; write nothing.

    Without ``builder`` every name counts as another's.
    """
    present = dict(_bundles(cache_dir))
    named, others, problem = _named(cache_dir, builder)
    if problem is not None:
        return Cache(problem=problem)
    traces = read_traces(cache_dir, now_s=now_s, present=present)
    noted = _read_note(state_dir)
    bundles: list[BundleFacts] = []
    for sha256, path in present.items():
        with suppress(FileNotFoundError):
            found = path.stat()
            # Published again after it was noted: a new period. A clock that was set back: from now.
            since_s = min(now_s, max(noted.get(sha256, now_s), found.st_mtime))
            bundles.append(
                BundleFacts(
                    sha256=sha256,
                    path=path,
                    size_bytes=found.st_size,
                    published_s=found.st_mtime,
                    unnamed_s=None if sha256 in named else since_s,
                    others_name_it=sha256 in others,
                    is_read=sha256 in traces.held,
                    marked_s=traces.last_use_s(sha256),
                )
            )
    leftovers = tuple(_leftovers(cache_dir, now_s=now_s, grace_s=grace_s))
    return Cache(tuple(bundles), leftovers, traces)


def collect(
    cache_dir: Path,
    state_dir: Path,
    *,
    now_s: float,
    grace_s: float,
    uses: Mapping[str, Use] | None = None,
) -> Collected:
    """Remove what nobody names any more once its grace period is over; hold the state lock for it.

    What cannot be removed, another user's say, is a problem in the answer, not an error.

    Raises:
        NotWritable: the state directory cannot be written.
        NoSpace: no space left for the note in it.
    """
    cache = look_at_cache(cache_dir, state_dir, now_s=now_s, grace_s=grace_s)
    if cache.problem is not None:
        return Collected(problem=cache.problem)
    _note(state_dir, cache)
    planned = plan(cache.bundles, uses or {}, Bounds(grace_s), now_s=now_s)
    doomed = [going.bundle for going in planned.removed]
    waiting = len(doomed) + len(planned.waiting)
    if doomed:
        # Another builder may have published in the meantime, and a hook begun to read.
        named, _, problem = _named(cache_dir, None)
        if problem is not None:
            return Collected(waiting=waiting, problem=problem)
        held = read_traces(cache_dir, now_s=now_s, present=()).held
        doomed = [bundle for bundle in doomed if bundle.sha256 not in named | held]
    removal = _Removal()
    removed = [bundle.sha256 for bundle in doomed if removal.remove(bundle.path)]
    leftovers = sum(removal.remove(path) for path, _ in cache.leftovers)
    for path in cache.traces.dead:
        # Another user's own, which is no problem: it has no size and counts no more.
        with suppress(OSError):
            path.unlink()
    return Collected(
        bundles=tuple(removed),
        leftovers=leftovers,
        freed_bytes=removal.freed_bytes,
        waiting=waiting - len(removed),
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


def _named(
    cache_dir: Path, builder: str | None
) -> tuple[frozenset[str], frozenset[str], str | None]:
    """Return what any manifest names, what another builder's does, and why that cannot be told."""
    manifests, problems = read_manifests(cache_dir)
    if problems:
        problem = f"nothing is collected while a manifest cannot be read: {problems[0]}"
        return frozenset(), frozenset(), problem
    names = [
        (found.manifest.builder == builder, entry.bundle.sha256)
        for found in manifests
        for entry in found.manifest.entries
    ]
    named = frozenset(sha256 for _, sha256 in names)
    return named, frozenset(sha256 for is_ours, sha256 in names if not is_ours), None


def _bundles(cache_dir: Path) -> Iterator[tuple[str, Path]]:
    for folder in _listed(cache_dir / "bundles" / "sha256"):
        for path in _listed(folder):
            if match := _BUNDLE.fullmatch(path.name):
                yield match[1], path


def _read_note(state_dir: Path) -> dict[str, float]:
    try:
        note = json.loads((state_dir / UNNAMED_NAME).read_bytes())
        return {str(sha256): float(since_s) for sha256, since_s in note.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _note(state_dir: Path, cache: Cache) -> None:
    since_s = {one.sha256: one.unnamed_s for one in cache.bundles if one.unnamed_s is not None}
    if not since_s and not (state_dir / UNNAMED_NAME).exists():
        return
    make_directory(state_dir)
    write_whole(state_dir / UNNAMED_NAME, json.dumps(since_s, sort_keys=True).encode())


def _leftovers(cache_dir: Path, *, now_s: float, grace_s: float) -> Iterator[tuple[Path, int]]:
    digests = cache_dir / "bundles" / "sha256"
    folders = [manifests_directory(cache_dir), cache_dir, cache_dir / "bundles", digests]
    for folder in (*folders, *_listed(digests)):
        for path in _listed(folder):
            # A writer at work touches its file all the time, so the grace period tells it apart.
            with suppress(FileNotFoundError):
                found = path.lstat()
                if is_part(path.name) and now_s - found.st_mtime >= grace_s:
                    yield path, found.st_size


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
