"""Which directories are checkpoints: the marks that a directory shows or its declaration gives it.

Owns the rules for one directory. Does not walk: ``layout`` does, from the top, so that nothing
inside a checkpoint is another.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from prewarm.registry.declaration_file import DeclarationFile
from prewarm.registry.names import is_passed_over

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".pt2")
EXPORTED = ".pt2"

#: A version's directory: "3", "v3", "1.2", MLflow's "version-3".
VERSION = re.compile(r"(?:v|version-)?[0-9]+(?:[._-][0-9]+)*")

#: Loaders whose checkpoint is whatever the declaration covers, since no `config.json` tells it.
_DECLARED_LOADERS = ("torch", "python", "command", "export")


@dataclass(frozen=True, slots=True)
class Directory:
    """The names in a directory; ``files`` holds linked files too, and links to nowhere."""

    path: Path
    files: frozenset[str]
    directories: tuple[str, ...]
    linked_directories: tuple[str, ...]
    linked_files: tuple[str, ...]

    @property
    def holds_weights(self) -> bool:
        """Say whether a file with weights, or the index of sharded ones, lies here."""
        return any(
            name.endswith((*WEIGHTS, ".safetensors.index.json", ".bin.index.json"))
            for name in self.files
        )

    @property
    def holds_versions(self) -> bool:
        """Say whether versions of a model lie here."""
        return any(
            VERSION.fullmatch(name) for name in (*self.directories, *self.linked_directories)
        )


def read_directory(path: Path) -> Directory:
    """List a directory once, with hidden and unfinished names left out.

    Raises:
        OSError: it is gone or cannot be read.

    """
    files, directories, linked_directories, linked_files = set(), [], [], []
    with os.scandir(path) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if is_passed_over(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.name)
            elif entry.is_symlink() and _leads_to_directory(entry):
                linked_directories.append(entry.name)
            else:
                files.add(entry.name)
                if entry.is_symlink():
                    linked_files.append(entry.name)
    return Directory(
        path, frozenset(files), tuple(directories), tuple(linked_directories), tuple(linked_files)
    )


def _leads_to_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a loop of links
        return False


def shows_marks(directory: Directory) -> bool:
    """Say whether a directory is a checkpoint by what lies in it, whatever is declared."""
    if "model_index.json" in directory.files or "MLmodel" in directory.files:
        return True
    return "config.json" in directory.files and directory.holds_weights


def is_served_version(directory: Directory, above: Directory | None) -> bool:
    """Say whether a directory is a version as Triton lays them: ``config.pbtxt`` beside it."""
    return (
        above is not None
        and "config.pbtxt" in above.files
        and VERSION.fullmatch(directory.path.name) is not None
        and directory.holds_weights
    )


def is_declared(
    directory: Directory, covering: DeclarationFile | None, *, relatives: set[str], at_root: bool
) -> bool:
    """Say whether the declaration that covers a directory makes it a checkpoint.

    ``relatives`` are the directory's path and names as they read from the declaration's directory.
    """
    if covering is None or not covering.parsed:
        return False
    own = covering.file.parent == directory.path
    if covering.declaration is None:
        return _is_meant_by_faulty(directory, covering, own=own)
    model = covering.declaration.model
    if model.state_dict and (directory.path / model.state_dict).is_file():
        return True
    random = model.weights == "random"
    if model.loader in ("transformers", "diffusers"):
        return random and "config.json" in directory.files
    if model.loader not in _DECLARED_LOADERS:
        return False
    if own and not covering.match:
        return _is_own(directory, loader=model.loader, random=random, at_root=at_root)
    if model.loader == "export":  # each .pt2 file is a checkpoint, not their directory
        return False
    return (
        directory.holds_weights
        or (random and bool(directory.files))
        or any(covering.names_exactly(relative) for relative in relatives)
    )


def _is_own(directory: Directory, *, loader: str, random: bool, at_root: bool) -> bool:
    """Judge a directory whose own file declares it without a match."""
    if loader == "export":
        return False
    if directory.holds_weights or random:
        return True
    # The root, or a model's directory with versions below, is no checkpoint for a file alone.
    return not at_root and not directory.holds_versions


def _is_meant_by_faulty(directory: Directory, covering: DeclarationFile, *, own: bool) -> bool:
    """Judge under a declaration with an error: the error must be told where it was meant."""
    if directory.holds_weights or "config.json" in directory.files:
        return True
    return (
        own and not covering.match and not (directory.directories or directory.linked_directories)
    )
