"""The names that Hugging Face's cache and MLflow's registry give to directories.

Owns their conventions: ``models--org--name/{blobs,refs,snapshots}``, and ``version-N/meta.yaml``
with the place of a model's artifacts. Reads small files only; what cannot be read names nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from prewarm.registry.layout_marks import Directory

_HUB = re.compile(r"(models|datasets|spaces)--.+")
_REVISION = re.compile(r"[A-Za-z0-9._-]{1,128}")
_MLFLOW_PLACE = re.compile(
    r"^(?:storage_location|source):[ \t]*(?P<place>\S.*?)[ \t]*$", re.MULTILINE
)
_MLFLOW_VERSION = re.compile(r"version-(?P<number>[0-9]+)")
_MAX_REFERENCE_BYTES = 4096
_MAX_META_BYTES = 1 << 20


def is_hub_directory(name: str) -> bool:
    """Say whether a directory is a repository of a Hugging Face cache."""
    return _HUB.fullmatch(name) is not None


def hub_repository(name: str) -> str | None:
    """Return ``org/name`` of a cached model's directory; None for a data set or space."""
    kind, _, repository = name.partition("--")
    # An organisation has no "--" in its name, a model may.
    return repository.replace("--", "/", 1) if kind == "models" else None


def revision_aliases(repository: Path) -> Iterator[tuple[str, str]]:
    """Yield each reference of a cached repository, such as ``main``, with its revision."""
    references = repository / "refs"
    for directory, _, files in os.walk(references):
        for file in sorted(files):
            path = Path(directory) / file
            revision = _text(path, _MAX_REFERENCE_BYTES).strip()
            if _REVISION.fullmatch(revision):
                yield path.relative_to(references).as_posix(), revision


def mlflow_links(directory: Directory, prefix: str) -> Iterator[tuple[str, Path]]:
    """Yield the names that a model in MLflow's registry gives to artifacts, with real places."""
    places: dict[str, Path] = {}
    for below in directory.directories:
        version = _MLFLOW_VERSION.fullmatch(below)
        place = _mlflow_place(directory.path / below / "meta.yaml") if version else None
        if version and place is not None:
            places[version["number"]] = place
            yield f"{prefix}{below}", place
    if places and "aliases" in directory.directories:
        for alias in _files(directory.path / "aliases"):
            number = _text(alias, _MAX_REFERENCE_BYTES).strip()
            if number in places:
                yield f"{prefix}{alias.name}", places[number]


def _mlflow_place(meta: Path) -> Path | None:
    """Return the real directory that a version's ``meta.yaml`` names, if it is a path."""
    for found in _MLFLOW_PLACE.finditer(_text(meta, _MAX_META_BYTES)):
        place = found["place"].strip("'\"")
        parts = urlsplit(place)
        if parts.scheme in ("", "file") and parts.path.startswith("/"):
            return Path(os.path.realpath(unquote(parts.path) if parts.scheme else place))
    return None


def _files(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _text(path: Path, limit_bytes: int) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(limit_bytes).decode("utf-8", "replace")
    except OSError:
        return ""
