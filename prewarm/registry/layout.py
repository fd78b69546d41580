"""Walking a registry: which directories and ``.pt2`` files are checkpoints, under which names.

Owns the walk from the top, links, and the names and aliases of versioned layouts. Rules:

- The topmost directory that is a checkpoint is one; nothing inside it is another.
- A real directory is visited once: nothing is counted twice, and no loop of links traps us.
- A link inside the registry is an alias of what it leads to; one that leaves the registry is told.

Does not list a checkpoint's files (``checkpoint``) and does not know the rules for one directory
(``layout_marks``) or of Hugging Face's and MLflow's own names (``layout_hubs``).
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from prewarm.errors import RegistryError
from prewarm.plain_text import is_plain, spelt_plain
from prewarm.registry.checkpoint import Excluded
from prewarm.registry.declaration_tree import DeclarationTree
from prewarm.registry.layout_hubs import (
    hub_repository,
    is_hub_directory,
    mlflow_links,
    revision_aliases,
)
from prewarm.registry.layout_marks import (
    EXPORTED,
    Directory,
    is_declared,
    is_served_version,
    read_directory,
    shows_marks,
)


@dataclass(slots=True)
class Located:
    """Where a checkpoint lies and what it is called, or why it cannot be taken up."""

    name: str
    path: Path
    aliases: set[str] = field(default_factory=set)
    problem: RegistryError | None = None


def locate_checkpoints(
    root: Path, tree: DeclarationTree, *, excluded: Excluded = lambda path: False
) -> tuple[Located, ...]:
    """Return every checkpoint below ``root``, a real path, sorted by name."""
    walk = _Walk(root, tree, excluded)
    walk.visit_root()
    walk.follow_links()
    return tuple(sorted(walk.located.values(), key=lambda located: located.name))


class _Walk:
    def __init__(self, root: Path, tree: DeclarationTree, excluded: Excluded) -> None:
        self._root = root
        self._tree = tree
        self._excluded = excluded
        self._visited: set[Path] = set()
        self._links: deque[tuple[str, Path]] = deque()
        #: By real path: a checkpoint is one, whatever it is called.
        self.located: dict[Path, Located] = {}

    def visit_root(self) -> None:
        self._visit(self._root, "", None)

    def follow_links(self) -> None:
        """Make each link an alias, after everything real has its name."""
        while self._links:
            name, target = self._links.popleft()
            if target in self.located:
                found = self.located[target]
                if name != found.name:
                    found.aliases.add(name)
            elif not target.is_relative_to(self._root):
                self._tell_foreign(name, target)
            elif not self._is_known(target):
                # A target that the walk passed over, such as the hidden store of an atomic switch.
                self._visit_target(name, target)

    def _is_known(self, target: Path) -> bool:
        return target in self._visited or any(path in self.located for path in target.parents)

    def _visit_target(self, name: str, target: Path) -> None:
        if target.is_dir():
            self._visit(target, name, None)
        elif target.is_file():
            self.located[target] = Located(name, target)

    def _tell_foreign(self, name: str, target: Path) -> None:
        """Tell of a link out of the registry, if what it leads to would be a checkpoint."""
        try:
            meant = target.name.endswith(EXPORTED) or (
                target.is_dir() and shows_marks(read_directory(target))
            )
        except OSError:
            return
        if meant:
            self._refuse(
                name,
                self._root / name,
                f"{name}: links to {target}, outside the registry, and is not followed; "
                "copy it in, or make the target's directory the registry",
            )

    def _refuse(self, name: str, path: Path, message: str) -> None:
        self.located[path] = Located(name, path, problem=RegistryError(message))

    def _refuse_name(self, name: str, path: Path) -> None:
        """Tell of a name that no terminal, manifest or database can hold as it is."""
        shown = spelt_plain(name)
        self._refuse(shown, path, f"{shown}: its name is no plain text; rename it")

    def _visit(self, path: Path, name: str, above: Directory | None) -> None:
        if path in self._visited or (name and self._excluded(name)):
            return
        self._visited.add(path)
        if not is_plain(name):
            self._refuse_name(name, path)
            return
        try:
            directory = read_directory(path)
        except (FileNotFoundError, NotADirectoryError):
            return  # it vanished since it was listed
        except OSError as error:
            what = f"{name or path}: cannot be read ({error.strerror}); allow reading or exclude it"
            self._refuse(name or path.name, path, what)
            return
        if self._is_checkpoint(directory, name, above):
            self.located[path] = Located(name or path.name, path)
            return
        self._visit_below(directory, name)

    def _is_checkpoint(self, directory: Directory, name: str, above: Directory | None) -> bool:
        if shows_marks(directory) or is_served_version(directory, above):
            return True
        names = (name,) if name else ()
        covering = self._tree.covering(directory.path, names)
        if covering is None:
            return False
        relatives = self._tree.relatives(covering.file.parent, directory.path, names)
        return is_declared(
            directory, covering, relatives=relatives, at_root=directory.path == self._root
        )

    def _visit_below(self, directory: Directory, name: str) -> None:
        prefix = f"{name}/" if name else ""
        for file in sorted(directory.files):
            if file.endswith(EXPORTED):
                self._add_exported(directory, file, f"{prefix}{file}")
        for below in directory.directories:
            path = directory.path / below
            if not is_hub_directory(below):
                self._visit(path, f"{prefix}{below}", directory)
            elif not self._excluded(f"{prefix}{below}"):
                self._visit_hub(path, prefix)
        for link in directory.linked_directories:
            self._link(f"{prefix}{link}", directory.path / link)
        for alias, target in mlflow_links(directory, prefix):
            if target.is_relative_to(self._root):
                self._links.append((alias, target))

    def _add_exported(self, directory: Directory, file: str, name: str) -> None:
        if self._excluded(name):
            return
        path = directory.path / file
        if file in directory.linked_files:
            self._link(name, path)
        elif is_plain(name):
            self.located[path] = Located(name, path)
        else:
            self._refuse_name(name, path)

    def _link(self, name: str, path: Path) -> None:
        target = Path(os.path.realpath(path))
        if not self._excluded(name) and is_plain(name):
            self._links.append((name, target))

    def _visit_hub(self, path: Path, prefix: str) -> None:
        """Visit one repository of a Hugging Face cache: each snapshot under its revision."""
        repository = hub_repository(path.name)
        self._visited.add(path)
        if repository is None:
            return
        repository = f"{prefix}{repository}"
        try:
            snapshots = read_directory(path / "snapshots")
        except OSError:
            return  # a repository of which nothing has arrived yet
        for revision in snapshots.directories:
            self._visit(path / "snapshots" / revision, f"{repository}@{revision}", None)
        for reference, revision in revision_aliases(path):
            found = self.located.get(path / "snapshots" / revision)
            if found is not None:
                found.aliases.add(f"{repository}@{reference}")
