"""The listing of a private tree: what was put there, and whether it still is.

Owns ``listing.json`` and the comparison with the disk. Repairs nothing. A change that keeps both
size and time is not seen at a look; the bundle's digest was checked when the file was written.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from prewarm.plain_text import is_plain
from prewarm.store.limited_file import read_limited_file
from prewarm.store.whole_file import write_whole

FORMAT = 1
NAME = "listing.json"

#: A listing of 100,000 files is 12 MB; what is larger is not ours.
_LIMIT_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 20

#: What comes from no bundle.
_OURS = "shim/"


@dataclass(frozen=True, slots=True)
class Written:
    """One file as it was written: its size and time on disk, and its content's digest."""

    size_bytes: int
    mtime_ns: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Listing:
    """Every file that a tree must hold, the bundles they came from, and the copy of torchside."""

    bundles: tuple[str, ...]
    torchside: str
    files: dict[str, Written]


def read_listing(tree: Path, *, least_files: int = 0) -> Listing | None:
    """Return the listing of a tree, or None where there is none that can be used.

    One that names fewer than ``least_files`` beside the shim's is not of bundles that hold so many.
    """
    path = tree / NAME
    try:
        found = json.loads(read_limited_file(path, _LIMIT_BYTES))
        of_bundles = sum(not name.startswith(_OURS) for name in found["files"])
        if found["format"] != FORMAT or of_bundles < least_files:
            return None
        return Listing(
            bundles=tuple(found["bundles"]),
            torchside=found["torchside"],
            files={
                _name(name): Written(int(size_bytes), int(mtime_ns), str(sha256))
                for name, (size_bytes, mtime_ns, sha256) in found["files"].items()
            },
        )
    except (
        OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError,
    ):  # fmt: skip
        return None


def _name(name: str) -> str:
    # A NUL or half a surrogate pair can be in no path, so nothing could be looked at.
    if not is_plain(name):
        raise ValueError(f"{name!r} is no name of a file in a bundle")
    return name


def write_listing(tree: Path, listing: Listing) -> None:
    """Write the listing of a tree whole."""
    text = json.dumps(
        {
            "format": FORMAT,
            "bundles": listing.bundles,
            "torchside": listing.torchside,
            "files": {
                name: (file.size_bytes, file.mtime_ns, file.sha256)
                for name, file in listing.files.items()
            },
        },
        separators=(",", ":"),
    )
    write_whole(tree / NAME, text.encode())


def changed_files(tree: Path, listing: Listing) -> tuple[str, ...]:
    """Return the listed files that are missing or look changed."""
    base = f"{tree}/"
    changed = []
    for name, file in listing.files.items():
        try:
            found = os.lstat(base + name)
        except OSError:
            changed.append(name)
            continue
        if (
            found.st_size != file.size_bytes
            or found.st_mtime_ns != file.mtime_ns
            or not is_readable(found.st_mode)
        ):
            changed.append(name)
    return tuple(changed)


def is_readable(mode: int) -> bool:
    """Tell whether this is the mode of a regular file that everybody may read."""
    return stat.S_ISREG(mode) and mode & 0o444 == 0o444


def written(path: Path, sha256: str | None = None) -> Written:
    """Return what stands on disk; the content is read unless its digest is given."""
    found = path.lstat()
    return Written(found.st_size, found.st_mtime_ns, sha256 or file_digest(path))


def file_digest(path: Path) -> str:
    """Return the sha256 of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
