"""The fingerprint of what a build came from: declaration files, source, configs, the checkpoint.

Owns the look that tells within milliseconds whether anything changed since. It reads no weights and
judges nothing. Imports no pydantic, since the hook takes it at every start.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Self

from prewarm.errors import ConfigError, RegistryError
from prewarm.registry.checkpoint import Checkpoint, Excluded, list_checkpoint
from prewarm.registry.names import CONFIGS, FILE_NAME
from prewarm.registry.source import source_files

#: More files than this are kept as one digest: then a change is told without the file's name.
MAX_NAMED = 64

#: A declaration or a config that is longer is none.
_MAX_BYTES = 16 << 20

#: Hex digits that tell two contents apart in a sentence.
_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Digests of a checkpoint's surroundings.

    ``place`` and ``file`` are the checkpoint and the declaration that covers it, relative to the
    registry. ``declarations`` is over every ``prewarm.toml`` that could cover it, so equal digests
    mean the same declaration. ``listing`` is over the names and sizes of the checkpoint's files.
    ``configs`` and ``source`` are digests by file name.
    """

    place: str
    file: str
    declarations: str
    listing: str
    files: int
    size_bytes: int
    configs: dict[str, str]
    source: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the fingerprint as a manifest holds it."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_dict(cls, value: object) -> Self | None:
        """Read a recorded fingerprint; None for what an older or a newer prewarm wrote."""
        if not isinstance(value, Mapping) or set(value) != set(cls.__slots__):
            return None
        kinds = {"files": int, "size_bytes": int, "configs": dict, "source": dict}
        if not all(isinstance(value[name], kinds.get(name, str)) for name in value):
            return None
        found = cls(**value)
        inside = (PurePosixPath(found.place), PurePosixPath(found.file))
        return None if any(one.is_absolute() or ".." in one.parts for one in inside) else found


def take_fingerprint(
    checkpoint: Checkpoint, *, root: Path, file: Path, source_directories: Iterable[Path]
) -> Fingerprint:
    """Return the fingerprint of a checkpoint that the declaration in ``file`` covers.

    Raises:
        OSError: a file cannot be read.
        ConfigError: there is too much source.

    """
    return Fingerprint(
        place=checkpoint.path.relative_to(root).as_posix(),
        file=file.relative_to(root).as_posix(),
        declarations=declarations_digest(checkpoint.path, root=root),
        listing=_listing(checkpoint),
        files=len(checkpoint.files),
        size_bytes=checkpoint.size_bytes,
        configs=_digests(
            (found.name, _read(found.path))
            for found in checkpoint.files
            if PurePosixPath(found.name).name in CONFIGS
        ),
        source=_digests(_source(checkpoint, source_directories)),
    )


def look_again(recorded: Fingerprint, *, root: Path) -> Fingerprint:
    """Return the present fingerprint of a place whose declarations are still the recorded ones.

    Raises:
        OSError: a file cannot be read.
        PrewarmError: the declaration is not the one that a scan found to be right.

    """
    file = root / recorded.file
    return take_fingerprint(
        checkpoint_at(root / recorded.place, root=root),
        root=root,
        file=file,
        source_directories=_source_directories(file),
    )


def checkpoint_at(place: Path, *, root: Path) -> Checkpoint:
    """List the checkpoint at a place of a registry as a scan does."""
    name = place.relative_to(root).as_posix()
    return list_checkpoint(place, name=name, root=root, excluded=_excluded(root / FILE_NAME))


def declarations_digest(place: Path, *, root: Path) -> str:
    """Return the digest over every declaration file at or above a place, up to the root."""
    digest = hashlib.sha256()
    for directory in (place, *place.parents):
        if not directory.is_relative_to(root):
            break
        try:
            raw = _read(directory / FILE_NAME)
        except (FileNotFoundError, NotADirectoryError):
            continue
        name = directory.relative_to(root).as_posix()
        digest.update(f"{name} {hashlib.sha256(raw).hexdigest()}\n".encode())
    return digest.hexdigest()


def _listing(checkpoint: Checkpoint) -> str:
    lines = (f"{file.size_bytes} {file.name}\n" for file in checkpoint.files)
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _source(checkpoint: Checkpoint, directories: Iterable[Path]) -> Iterable[tuple[str, bytes]]:
    for found in checkpoint.files:
        if found.name.endswith(".py"):
            yield f"checkpoint/{found.name}", _read(found.path)
    for number, directory in enumerate(directories):
        for name, text in source_files(directory, label=FILE_NAME):
            yield (f"{number + 1}/{name}" if number else name), text


def _digests(files: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    found = {name: hashlib.sha256(raw).hexdigest()[:_DIGITS] for name, raw in files}
    if len(found) <= MAX_NAMED:
        return found
    together = hashlib.sha256("\n".join(f"{name} {found[name]}" for name in sorted(found)).encode())
    return {f"{len(found)} files": together.hexdigest()[:_DIGITS]}


def _read(path: Path) -> bytes:
    with path.open("rb") as stream:
        raw = stream.read(_MAX_BYTES + 1)
    if len(raw) > _MAX_BYTES:
        raise RegistryError(f"{path.name} is over {_MAX_BYTES:,} bytes; replace it")
    return raw


def _table(file: Path, name: str) -> Mapping[str, Any]:
    """Return one table of a declaration that a scan has found to be right."""
    import tomllib

    try:
        table = tomllib.loads(_read(file).decode("utf-8-sig")).get(name)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: not valid TOML: {error}; mend it") from error
    return table if isinstance(table, dict) else {}


def _source_directories(file: Path) -> tuple[Path, ...]:
    entries = _table(file, "model").get("path", ())
    return tuple((file.parent / str(entry)).resolve() for entry in entries)


def _excluded(root_file: Path) -> Excluded:
    patterns = _table(root_file, "registry").get("exclude", ()) if root_file.is_file() else ()
    if not patterns:
        return lambda path: False
    from prewarm.registry.path_glob import matches

    return lambda path: any(matches(str(pattern), path) for pattern in patterns)
