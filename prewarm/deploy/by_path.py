"""A model named by a path: matched by its content, then by its architecture.

Owns the reading of a checkpoint outside its registry. Imports the registry's side, and with it
pydantic, so the hook imports this file only for a path.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prewarm.deploy.published import Published
from prewarm.deploy.select import with_architecture, with_checkpoint
from prewarm.errors import NotWarm, PrewarmError, RegistryError
from prewarm.registry.architecture import architecture_digest
from prewarm.registry.checkpoint import Checkpoint, list_checkpoint
from prewarm.registry.content import content_digest
from prewarm.registry.declaration_tree import DeclarationTree
from prewarm.registry.names import FILE_NAME

#: What is told of a bundle that was proven with other weights.
NOT_PROVEN = "same architecture, not proven for these weights"

_NOR_ALIKE = " or this architecture"
_NOT_DECLARED = f", and its architecture is not known without a {FILE_NAME} that covers it"


def published_for_path(
    path: Path, published: Sequence[Published]
) -> tuple[tuple[Published, ...], str | None]:
    """Return the entries that fit the checkpoint at ``path``, and why they are no proof for it.

    Raises:
        RegistryError: the path cannot be read.
        NotWarm: nothing that is published fits it.
    """
    real = path.resolve()
    try:
        checkpoint = list_checkpoint(real, name=real.name, root=Path(real.anchor))
    except OSError as error:
        raise RegistryError(
            f"{path}: cannot be read ({error.strerror}); name a model or a checkpoint's directory"
        ) from error
    same = with_checkpoint(published, content_digest(checkpoint))
    if same:
        return same, None
    architecture = _architecture(checkpoint)
    alike = with_architecture(published, architecture) if architecture else ()
    if not alike:
        nor = _NOR_ALIKE if architecture else _NOT_DECLARED
        raise NotWarm(
            f"{path}: no published checkpoint has this content{nor}; run `prewarm scan` over it, "
            "or name a model",
            code="not_published",
        )
    return alike, NOT_PROVEN


def _architecture(checkpoint: Checkpoint) -> str | None:
    """Return the architecture's digest, if the declaration that it depends on can be found."""
    declared = [place for place in _places(checkpoint.path) if (place / FILE_NAME).is_file()]
    if not declared:
        return None
    found = DeclarationTree(declared[-1]).covering(checkpoint.path)
    if found is None or found.declaration is None:
        return None
    try:
        return architecture_digest(checkpoint, found.declaration)
    except PrewarmError:
        # Only a comparison is lost: the model is told as not published.
        return None


def _places(path: Path) -> tuple[Path, ...]:
    return (path, *path.parents)
