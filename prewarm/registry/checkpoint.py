"""A checkpoint as it lies in the registry: its name, its files, and when they last changed.

Owns the listing of a checkpoint's files, with links followed inside the registry only. Does not
read contents, and does not judge whether they are whole: ``completeness`` does.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from prewarm.registry.names import FILE_NAME, UNFINISHED, is_passed_over

#: Where ``hf download --local-dir`` keeps what it has not finished.
_HF_LOCAL_DOWNLOADS = (".cache", "huggingface", "download")

Excluded = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """One file: its name inside the checkpoint, where it really lies, and what tells a change."""

    name: str
    place: str
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @property
    def path(self) -> Path:
        """Return where it lies; made when asked for, since a scan lists 100,000 files."""
        return Path(self.place)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model's directory or ``.pt2`` file.

    ``path`` is real: no link is left in it. ``newest_mtime_s`` is the newest modification or change
    of any file, since a copy may keep old modification times; ``unfinished_mtime_s`` is that of
    what a copy or download keeps beside them until it is whole. ``faults`` are files that could
    not be listed, one line each.
    """

    name: str
    path: Path
    aliases: tuple[str, ...]
    files: tuple[CheckpointFile, ...]
    newest_mtime_s: float
    unfinished_mtime_s: float = 0.0
    faults: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Return the size of all files."""
        return sum(file.size_bytes for file in self.files)

    def file(self, name: str) -> CheckpointFile | None:
        """Return the file of that name, if there is one."""
        return next((file for file in self.files if file.name == name), None)


def list_checkpoint(
    path: Path,
    *,
    name: str,
    root: Path,
    aliases: tuple[str, ...] = (),
    excluded: Excluded = lambda path: False,
) -> Checkpoint:
    """List the files of the checkpoint at ``path``, a real path inside ``root``.

    Raises:
        FileNotFoundError: it has vanished.

    """
    listing = _Listing(root, name, excluded)
    if stat.S_ISDIR(path.stat().st_mode):
        listing.add_directory(path, "")
        listing.count_unfinished(path)
    else:
        listing.add_file(str(path), path.name, path.stat)
    return Checkpoint(
        name=name,
        path=path,
        aliases=aliases,
        files=tuple(sorted(listing.files, key=lambda file: file.name)),
        newest_mtime_s=listing.newest_ns / 1e9,
        unfinished_mtime_s=listing.unfinished_ns / 1e9,
        faults=tuple(listing.faults),
    )


class _Listing:
    def __init__(self, root: Path, checkpoint: str, excluded: Excluded) -> None:
        self._root = root
        self._checkpoint = checkpoint
        self._excluded = excluded
        self._visited: set[str] = set()
        self.files: list[CheckpointFile] = []
        self.faults: list[str] = []
        self.newest_ns = 0
        self.unfinished_ns = 0

    def add_directory(self, directory: Path, prefix: str) -> None:
        place = str(directory)  # real: links were followed on the way
        if place in self._visited:  # a link that leads back
            return
        self._visited.add(place)
        try:
            with os.scandir(directory) as entries:
                ordered = sorted(entries, key=lambda entry: entry.name)
        except FileNotFoundError:
            if not prefix:
                raise
            return
        except OSError as error:
            self.faults.append(f"{prefix or '.'}: cannot be read ({error.strerror}); allow reading")
            return
        for entry in ordered:
            self._add(entry, f"{prefix}{entry.name}")

    def _add(self, entry: os.DirEntry[str], name: str) -> None:
        if is_passed_over(entry.name):
            if entry.is_file(follow_symlinks=False):
                self._see_unfinished(entry.stat(follow_symlinks=False))
            return
        if name == FILE_NAME or self._excluded(f"{self._checkpoint}/{name}"):
            return
        if entry.is_symlink():
            path = Path(os.path.realpath(entry.path))
            if not path.is_relative_to(self._root):
                self.faults.append(
                    f"{name}: links to {path}, outside the registry; copy it in instead"
                )
                return
            self.add_file(str(path), name, path.stat)
        elif entry.is_dir(follow_symlinks=False):
            self.add_directory(Path(entry.path), f"{name}/")
        else:
            self.add_file(entry.path, name, partial(entry.stat, follow_symlinks=False))

    def add_file(self, place: str, name: str, stat_of: Callable[[], os.stat_result]) -> None:
        try:
            found = stat_of()
        except FileNotFoundError:
            self.faults.append(f"{name}: is gone, or links to nothing; copy the file again")
            return
        except OSError as error:
            self.faults.append(f"{name}: cannot be read ({error.strerror}); allow reading")
            return
        if stat.S_ISDIR(found.st_mode):
            self.add_directory(Path(place), f"{name}/")
        if not stat.S_ISREG(found.st_mode):
            return
        self.newest_ns = max(self.newest_ns, _changed_ns(found))
        self.files.append(
            CheckpointFile(
                name, place, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
            )
        )

    def count_unfinished(self, path: Path) -> None:
        """Count the downloads that Hugging Face's tools keep elsewhere until they are whole."""
        places = [path.joinpath(*_HF_LOCAL_DOWNLOADS)]
        if path.parent.name == "snapshots":
            places.append(path.parent.parent / "blobs")
        for place in places:
            for file in _unfinished(place):
                self._see_unfinished(file)

    def _see_unfinished(self, found: os.stat_result) -> None:
        self.unfinished_ns = max(self.unfinished_ns, _changed_ns(found))


def _changed_ns(found: os.stat_result) -> int:
    return max(found.st_mtime_ns, found.st_ctime_ns)


def _unfinished(directory: Path) -> Iterator[os.stat_result]:
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.endswith(UNFINISHED):
                    yield entry.stat(follow_symlinks=False)
    except OSError:  # the usual case: there is no such directory
        return
