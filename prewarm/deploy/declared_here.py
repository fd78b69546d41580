"""A model's declaration as it stands in a registry now, for a start without any bundle.

Imports the registry's side, and with it pydantic.
"""

from __future__ import annotations

import os
from pathlib import Path

from prewarm.deploy.recorded import Buildable
from prewarm.errors import PrewarmError
from prewarm.registry.declaration_tree import DeclarationTree


def declared_here(model: str, *, registry: Path, path: Path | None) -> Buildable | None:
    """Return what the model is built from by the registry's declaration, None where it has none.

    Raises:
        PrewarmError: the declaration is wrong, or asks for what is not built yet.
    """
    place = Path(os.path.realpath(registry / model.strip("/")))
    if not place.is_relative_to(registry) or not place.exists():
        return None
    covering = DeclarationTree(registry).covering(place, (model,))
    if covering is None:
        return None
    if covering.problem is not None:
        raise covering.problem
    declaration = covering.declaration
    if declaration is None:
        return None
    for line in declaration.not_yet():
        raise PrewarmError(f"{model}: {line}", code="not_yet")
    return Buildable(declaration.request(), path or place, declaration.compile.mode[0])
