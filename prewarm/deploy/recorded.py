"""From what a manifest entry records to what a server needs to build the model as declared.

Pure but for looking whether directories are there. Owns where a deployment finds the checkpoint and
the declaration's own source, since a manifest holds no absolute path.

- The declaration is the one that was proven, not what stands in a registry by now.
- The checkpoint is the path that is given, else the entry's place in a registry that is seen here.
- Source below ``path`` lies where it lay relative to the checkpoint; where it is not there, the
  server's own import path must have it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prewarm.deploy.declared_shapes import declared_shapes, keeps_order
from prewarm.errors import ConfigError, NotWarm

#: What a manifest leaves of an absolute path (``store/manifest_text.py``).
_CUT = "…/"


@dataclass(frozen=True, slots=True)
class Buildable:
    """A declaration as ``torchside`` takes it, the checkpoint, and the mode that was built."""

    declaration: dict[str, Any]
    checkpoint: Path
    mode: str

    @property
    def shapes(self) -> list[dict[str, Any]]:
        """The declared shape sets."""
        shapes: list[dict[str, Any]] = self.declaration["shapes"]
        return shapes


def buildable(entry: Mapping[str, Any], *, path: Path | None, registry: Path | None) -> Buildable:
    """Return what the entry's model is built from here.

    Raises:
        NotWarm: the entry does not record enough of its declaration.
        ConfigError: the checkpoint is not found, or the declaration names a path of the builder's.
    """
    model = entry["model"]
    proof = entry.get("proof") or {}
    declared, origin = proof.get("declared"), proof.get("source_files")
    place = origin if isinstance(origin, Mapping) else {}
    if not isinstance(declared, Mapping):
        raise _unknown(model)
    if not keeps_order(declared):
        raise _unknown(model)
    facts, beside, shapes = declared["model"], declared["load"], declared_shapes(declared)
    lost = next(_cut_paths({"kwargs": facts["kwargs"], "shapes": shapes}, ""), None)
    if lost is not None:
        raise ConfigError(
            f"{model}: {lost} is a path on the builder's machine, which no manifest carries; name "
            "what it holds relative to the checkpoint, or load the model yourself"
        )
    checkpoint = _checkpoint(model, place, path, registry)
    return Buildable(
        declaration={
            "model": {
                **facts,
                "path": _source(beside["path"], place, checkpoint),
                "state_dict": beside["state_dict"],
                "weights": beside["weights"],
            },
            "compile": {
                **declared["compile"],
                "targets": [_target(one) for one in declared["compile"]["targets"]],
            },
            "shapes": shapes,
        },
        checkpoint=checkpoint,
        mode=entry["compile"]["mode"],
    )


def _checkpoint(
    model: str, place: Mapping[str, Any], path: Path | None, registry: Path | None
) -> Path:
    if path is not None:
        if not path.exists():
            raise ConfigError(f"{path}: is not there; name the checkpoint of {model} with path=")
        return path.absolute()
    named = str(place.get("place") or "")
    found = registry / named if registry is not None and named else None
    if found is not None and found.exists():
        return found.absolute()
    seen = f"{found} is not there" if found is not None else "no registry is seen here"
    raise ConfigError(f"{model}: {seen}; name its checkpoint with path=")


def _source(entries: list[str], place: Mapping[str, Any], checkpoint: Path) -> list[str]:
    if not place.get("file"):
        return []
    # Both are relative to the registry; what counts is the way from one to the other.
    beside = os.path.relpath(Path(place["file"]).parent, place["place"])
    found = (Path(os.path.normpath(checkpoint / beside / entry)) for entry in entries)
    return [str(directory) for directory in found if directory.is_dir()]


def _target(stated: Any) -> dict[str, Any]:
    return dict(stated) if isinstance(stated, Mapping) else {"at": stated}


def _cut_paths(value: Any, where: str) -> Iterator[str]:
    """Yield where a text held an absolute path before it was published."""
    if isinstance(value, str) and _CUT in value:
        yield where
    elif isinstance(value, Mapping):
        for key, below in value.items():
            yield from _cut_paths(below, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        for below in value:
            yield from _cut_paths(below, where)


def _unknown(model: str) -> NotWarm:
    return NotWarm(
        f"{model}: was published by an older prewarm, which did not record how it is loaded; run "
        f"`prewarm verify {model}` on the builder, or load it yourself after prewarm.activate()"
    )
