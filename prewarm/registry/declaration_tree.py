"""The declarations of one registry: the nearest file at or above a checkpoint that covers it wins.

Owns the search upwards and reads each file once; a tree lives for one scan. Does not decide which
directories are checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prewarm.registry.declaration_file import DeclarationFile, read_declaration_file
from prewarm.registry.names import FILE_NAME


class DeclarationTree:
    """The declarations of one registry, each file read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[Path, DeclarationFile | None] = {}

    def file_in(self, directory: Path) -> DeclarationFile | None:
        """Return the declaration file that stands in a directory."""
        if directory not in self._files:
            self._files[directory] = read_declaration_file(directory / FILE_NAME, root=self._root)
        return self._files[directory]

    def covering(self, path: Path, names: Iterable[str] = ()) -> DeclarationFile | None:
        """Return the nearest file that covers a checkpoint at ``path`` or by one of its names."""
        names = tuple(names)
        for directory in (path, *path.parents):
            if not directory.is_relative_to(self._root):
                return None
            found = self.file_in(directory)
            if found and any(map(found.covers, self.relatives(directory, path, names))):
                return found
        return None

    def relatives(self, directory: Path, path: Path, names: Iterable[str]) -> set[str]:
        """Return a checkpoint's path and names as they read from a directory."""
        relatives = {path.relative_to(directory).as_posix()}
        if path.suffix == ".pt2" and path != directory:
            # An exported file is covered with its directory too.
            relatives.add(path.parent.relative_to(directory).as_posix())
        above = directory.relative_to(self._root).as_posix()
        prefix = "" if above == "." else f"{above}/"
        return relatives | {
            name[len(prefix) :] for name in names if name.startswith(prefix) and name != prefix
        }

    def files(self) -> tuple[DeclarationFile, ...]:
        """Return every file that was read so far."""
        return tuple(found for found in self._files.values() if found)
