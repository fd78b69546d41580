"""Reading one ``prewarm.toml``: what it declares, what it covers, or what is wrong with it.

Owns reading, TOML errors and the match of a single file. Does not look for files:
``declaration_tree`` does.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from prewarm.errors import ConfigError
from prewarm.registry.declaration import Declaration, DeclarationTables
from prewarm.registry.declaration_errors import issue_lines, join_issues, nearest_key
from prewarm.registry.model_table import RegistryTable
from prewarm.registry.names import FILE_NAME
from prewarm.registry.path_glob import is_literal, matches
from prewarm.registry.toml_lines import lines_of_keys
from prewarm.registry.toml_scalars import Table

#: A declaration is written by hand; anything longer is another file under this name.
MAX_SIZE_BYTES = 1 << 20

#: Directories that a default match covers besides its own: the versions of a model in it.
_VERSION = re.compile(r"(?:v|version-)?[0-9]+(?:[._-][0-9]+)*|snapshots/[^/]+")

_TOML_PLACE = re.compile(r"\s*\(at (?:line (?P<line>\d+), column \d+|end of document)\)$")


@dataclass(frozen=True, slots=True)
class DeclarationFile:
    """One ``prewarm.toml``: its declaration, or what is wrong with it, or neither.

    ``match`` is empty for the file's own directory, and None where no model is declared.
    """

    file: Path
    label: str
    registry: RegistryTable
    declaration: Declaration | None
    problem: ConfigError | None
    match: tuple[str, ...] | None
    parsed: bool

    def covers(self, relative: str) -> bool:
        """Say whether the file covers a checkpoint at that path below its directory."""
        if not self.parsed:
            # It may have been meant for anything below it: better told there than lost.
            return True
        if not self.match:
            return self.match is not None and (
                relative == "." or _VERSION.fullmatch(relative) is not None
            )
        return any(
            matches(pattern, relative) or (pattern == "*" and relative == ".")
            for pattern in self.match
        )

    def names_exactly(self, relative: str) -> bool:
        """Say whether a pattern without wildcards names that path."""
        return any(
            is_literal(pattern) and matches(pattern, relative) for pattern in self.match or ()
        )


def read_declaration(file: Path, *, root: Path | None = None) -> Declaration:
    """Read the declaration of one file.

    Raises:
        ConfigError: it cannot be read, is wrong, or declares no model; all issues in one line.

    """
    found = read_declaration_file(file, root=root or file.parent)
    if found is None:
        raise ConfigError(f"{file}: no such file; `prewarm init` writes a first one")
    if found.problem is not None:
        raise found.problem
    if found.declaration is None:
        raise ConfigError(f"{found.label}: [model] is missing; write [model] with a loader")
    return found.declaration


def read_declaration_file(file: Path, *, root: Path) -> DeclarationFile | None:
    """Read one file, keeping what is wrong with it as a value; None when there is none."""
    label = file.relative_to(root).as_posix() if file.is_relative_to(root) else str(file)
    data: dict[str, Any] | None = None
    declaration, registry, problem = None, RegistryTable(), None
    try:
        text = _text(file, label)
        if text is None:
            return None
        data = _parsed(text, label)
        registry, declaration = _checked(
            data, text, file=file, label=label, at_root=file.parent == root
        )
    except ConfigError as error:
        problem = error
    match = _match(data, problem)
    return DeclarationFile(file, label, registry, declaration, problem, match, data is not None)


def _text(file: Path, label: str) -> str | None:
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_SIZE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{label}: cannot be read ({error.strerror}); check it") from error
    if len(raw) > MAX_SIZE_BYTES:
        raise ConfigError(f"{label}: over {MAX_SIZE_BYTES:,} bytes, no declaration is that long")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{label}:{line}: not UTF-8; save the file as UTF-8") from error


def _parsed(text: str, label: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        message = str(error)
        place = _TOML_PLACE.search(message)
        line = place["line"] if place and place["line"] else text.rstrip().count("\n") + 1
        what = message[: place.start()] if place else message
        raise ConfigError(
            f"{label}:{line}: not valid TOML: {what[:1].lower()}{what[1:]}; mend this line"
        ) from error


def _checked(
    data: dict[str, Any], text: str, *, file: Path, label: str, at_root: bool
) -> tuple[RegistryTable, Declaration | None]:
    if "registry" in data and not at_root:
        place = ("registry",)
        what = f"belongs to the registry's root; move it to {FILE_NAME} there"
        raise ConfigError(join_issues([(place, what)], file=label, lines=lines_of_keys(text)))
    try:
        if at_root and _declares_no_model(data):
            return _RegistryOnly.model_validate(data).registry, None
        tables = DeclarationTables.model_validate(data)
    except ValidationError as error:
        line = issue_lines(error, file=label, lines=lines_of_keys(text), data=data)
        raise ConfigError(line) from error
    return tables.registry, Declaration.from_tables(tables, file, label)


class _RegistryOnly(Table):
    """A root's file that sets up the registry and declares no model."""

    registry: RegistryTable = RegistryTable()


def _declares_no_model(data: dict[str, Any]) -> bool:
    others = set(data) - {"registry"}
    return not others or (
        "registry" in data and not any(nearest_key(key, DeclarationTables) for key in others)
    )


def _match(data: dict[str, Any] | None, problem: ConfigError | None) -> tuple[str, ...] | None:
    """Return the patterns of a file, even of one that is wrong elsewhere."""
    if data is None:
        return None
    model = data.get("model")
    if not isinstance(model, dict):
        return () if problem and set(data) - {"registry"} else None
    match = model.get("match", ())
    patterns = (match,) if isinstance(match, str) else match
    if not isinstance(patterns, list | tuple):
        return ()
    return tuple(pattern for pattern in patterns if isinstance(pattern, str))
