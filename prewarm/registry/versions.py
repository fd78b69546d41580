"""Which versions of a model ``[registry] keep`` leaves out of a scan.

Owns what a version is here, and their order. Pure. Rules:

- ``name/3``, ``name/v3``, ``name/2024-06-01`` are versions of ``name``, ordered by their numbers;
  the revisions ``org/name@…`` of a Hugging Face cache by when their files last changed.
- What a link or reference names (``latest``, ``main``) stays, however old it is.
- An older version goes only when enough newer ones are whole: those that are not have no place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from prewarm.registry.checkpoint import Checkpoint
from prewarm.registry.layout_marks import EXPORTED, VERSION

_NUMBER = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class Version:
    """One checkpoint as a version of a model; ``order`` grows with newer ones."""

    model: str
    order: tuple[float, ...]


def left_out(whole: Iterable[Checkpoint], keep: str) -> frozenset[str]:
    """Return the names of the whole checkpoints that are older than the newest N of their model."""
    if not keep.startswith("latest:"):
        return frozenset()
    count = int(keep.removeprefix("latest:"))
    models: dict[str, list[tuple[tuple[float, ...], str]]] = {}
    named = set()
    for checkpoint in whole:
        version = version_of(checkpoint)
        if version is not None:
            models.setdefault(version.model, []).append((version.order, checkpoint.name))
            if any(_version_by_name(alias) is None for alias in checkpoint.aliases):
                named.add(checkpoint.name)
    older = {
        name for versions in models.values() for _, name in sorted(versions, reverse=True)[count:]
    }
    return frozenset(older - named)


def version_of(checkpoint: Checkpoint) -> Version | None:
    """Return which version of which model a checkpoint is; None if it is no version."""
    repository, at, _ = checkpoint.name.rpartition("@")
    if at and "/" not in checkpoint.name[len(repository) :]:
        return Version(repository, (checkpoint.newest_mtime_s,))
    # MLflow names the versions; what lies there is named for the run that wrote it.
    names = (checkpoint.name, *checkpoint.aliases)
    return next(filter(None, map(_version_by_name, names)), None)


def _version_by_name(name: str) -> Version | None:
    above, _, last = name.rpartition("/")
    file = ""
    if last.endswith(EXPORTED):
        file = f"/{last}"
        above, _, last = above.rpartition("/")
    if VERSION.fullmatch(last) is None:
        return None
    return Version(f"{above}{file}", tuple(int(number) for number in _NUMBER.findall(last)))
