"""The quarantine: ``state_dir/quarantine``, where bundles that failed are kept for inspection.

Owns the directory and its bounds. Which bundle goes there, and when, is the builder's to decide
(``build/quarantine.py``); hold the state lock for it.

- A bundle is ``<sha256>.tar.zst`` with a note, ``<sha256>.json``, which is written first.
- What cannot be kept (too large, no file, a full disk) is removed, and the note says why.
- Nothing here raises: the run whose bundle failed goes on and builds it again.
- Counting is one listing without opening a file, since ``prewarm status`` does it at each call.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from prewarm.errors import PrewarmError
from prewarm.store.whole_file import is_part, make_directory, whole_file, write_errors, write_whole

#: Some tens of megabytes each: enough to compare a few, and soon looked through.
MOST_BUNDLES = 8

#: A quarantine shares its disk with the database and the scratch of every build.
LARGEST_BYTES = 4 << 30

_NOTE, _BUNDLE = ".json", ".tar.zst"

_COPY_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Note:
    """What stands beside a bundle; ``not_kept`` says why the file itself is not there."""

    sha256: str
    reason: str
    at: str
    models: tuple[str, ...]
    build_keys: tuple[str, ...]
    size_bytes: int = 0
    not_kept: str | None = None


@dataclass(frozen=True, slots=True)
class Quarantine:
    """How much is in a quarantine; a bundle of which only the note was kept counts as well.

    Both numbers are None where this user may not look.
    """

    directory: Path
    bundles: int | None
    size_bytes: int | None


@dataclass(slots=True)
class _Kept:
    """Note and bundle of one digest; the note is new when it arrives, so the later time counts."""

    files: list[str]
    size_bytes: int = 0
    arrived_ns: int = 0


def quarantine_directory(state_dir: Path) -> Path:
    """Return where a builder keeps the bundles that failed."""
    return state_dir / "quarantine"


def read_quarantine(state_dir: Path) -> Quarantine:
    """Count what is in the quarantine."""
    directory = quarantine_directory(state_dir)
    try:
        kept = _listed(directory)
    except OSError:
        return Quarantine(directory, None, None)
    return Quarantine(directory, len(kept), sum(one.size_bytes for one in kept.values()))


def move_to_quarantine(bundle: Path, state_dir: Path, note: Note) -> str | None:
    """Take a bundle out of ``cache_dir``, with its note; return why it is still there, or None.

    What stands in the bundle's place is gone afterwards whether or not it could be kept.
    """
    directory = quarantine_directory(state_dir)
    try:
        found = bundle.lstat()
    except OSError:
        return None
    note = replace(note, size_bytes=found.st_size, not_kept=_unfit(found))
    try:
        make_directory(directory)
        _make_room(directory, note)
        _write(directory, note)
        if note.not_kept is None:
            with write_errors(bundle):
                _move(bundle, directory / f"{note.sha256}{_BUNDLE}")
            return None
    except (PrewarmError, OSError) as error:
        note = replace(note, not_kept=str(error))
    problem = _remove(bundle)
    with suppress(PrewarmError, OSError):
        _write(directory, note)
    return problem


def _unfit(found: os.stat_result) -> str | None:
    if not stat.S_ISREG(found.st_mode):
        return "something else than a file stood in its place"
    if found.st_size > LARGEST_BYTES:
        return f"it is larger than the {LARGEST_BYTES:,} bytes that are kept in all"
    return None


def _make_room(directory: Path, note: Note) -> None:
    """Remove the oldest until one more fits, what was kept of this one, and what a crash left."""
    for path in directory.iterdir():
        if is_part(path.name):
            path.unlink(missing_ok=True)
    kept = _listed(directory)
    doomed = [kept.pop(note.sha256)] if note.sha256 in kept else []
    left = sorted(kept.values(), key=lambda one: one.arrived_ns)
    needed_bytes = note.size_bytes if note.not_kept is None else 0
    while left and (
        len(left) >= MOST_BUNDLES
        or sum(one.size_bytes for one in left) + needed_bytes > LARGEST_BYTES
    ):
        doomed.append(left.pop(0))
    for one in doomed:
        for name in one.files:
            (directory / name).unlink(missing_ok=True)


def _write(directory: Path, note: Note) -> None:
    text = json.dumps(asdict(note), indent=1, ensure_ascii=False) + "\n"
    write_whole(directory / f"{note.sha256}{_NOTE}", text.encode())


def _move(bundle: Path, target: Path) -> None:
    try:
        bundle.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    else:
        return
    size_bytes = bundle.stat().st_size
    with bundle.open("rb") as file, whole_file(target, needed_bytes=size_bytes) as copy:
        shutil.copyfileobj(file, copy, _COPY_CHUNK_BYTES)
    bundle.unlink()


def _remove(bundle: Path) -> str | None:
    try:
        if bundle.is_dir() and not bundle.is_symlink():
            shutil.rmtree(bundle)
        else:
            bundle.unlink()
    except FileNotFoundError:
        return None
    except OSError as error:
        cause = error.strerror or str(error)
        return f"{bundle}: is of no use and cannot be removed ({cause}); remove it by hand"
    return None


def _listed(directory: Path) -> dict[str, _Kept]:
    kept: dict[str, _Kept] = {}
    for name, found in _files(directory):
        for suffix in (_NOTE, _BUNDLE):
            if name.endswith(suffix):
                one = kept.setdefault(name.removesuffix(suffix), _Kept([]))
                one.files.append(name)
                one.size_bytes += found.st_size if suffix == _BUNDLE else 0
                one.arrived_ns = max(one.arrived_ns, found.st_mtime_ns)
    return kept


def _files(directory: Path) -> Iterator[tuple[str, os.stat_result]]:
    try:
        listing = os.scandir(directory)
    except FileNotFoundError:
        return
    with listing:
        for found in listing:
            # Hidden files are those on their way; one may go while it is counted.
            if not found.name.startswith("."):
                with suppress(FileNotFoundError):
                    yield found.name, found.stat(follow_symlinks=False)
