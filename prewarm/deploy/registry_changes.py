"""What changed in a registry since an entry was built, field by field.

Reads the declaration and, where it must, the heads of the weights. Imports the registry's side, and
with it pydantic: ``registry_now.py`` imports this only where something changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prewarm.deploy.registry_now import OTHER_WEIGHTS
from prewarm.environment import Difference
from prewarm.errors import PrewarmError
from prewarm.registry.architecture import architecture_digest
from prewarm.registry.checkpoint import Checkpoint
from prewarm.registry.declaration import Declaration
from prewarm.registry.declaration_tree import DeclarationTree
from prewarm.registry.declared import FULL, compare_declared
from prewarm.registry.fingerprint import Fingerprint, checkpoint_at, take_fingerprint
from prewarm.registry.names import FILE_NAME
from prewarm.store.manifest import ManifestEntry, without_paths

#: Fields that are part of the architecture too.
_IN_ARCHITECTURE = tuple(
    f"[model] {key}" for key in ("loader", "class", "factory", "kwargs", "setup")
)


#: What changed source costs: torch's keys hold the names of operators and passes, not their code.
OLD_CODE = "refused: an old graph would answer for the new code"


def registry_changes(
    entry: ManifestEntry, recorded: Fingerprint, declared: Mapping[str, Any], *, root: Path
) -> tuple[Difference, ...] | None:
    """Return each field, and what of source and checkpoint, that differs now.

    None where no declaration covers the checkpoint any more: weights alone declare nothing.

    Raises:
        OSError: a file cannot be read.

    """
    place = root / recorded.place
    try:
        covering = DeclarationTree(root).covering(place, (entry.model,))
        if covering is None or (covering.declaration is None and covering.problem is None):
            return None
        if covering.declaration is None:
            assert covering.problem is not None
            raise covering.problem
        declaration = covering.declaration
        checkpoint = checkpoint_at(place, root=root)
        present = take_fingerprint(
            checkpoint,
            root=root,
            file=declaration.file,
            source_directories=declaration.source_directories(),
        )
        fields = compare_declared(declared, without_paths(declaration.recorded()))
        around = _around(entry, recorded, present, fields, checkpoint, declaration)
    except PrewarmError as error:
        cost = "nothing can be built from it until it is mended"
        return (Difference(FILE_NAME, "a declaration", f"wrong ({error})", cost),)
    return (*fields, *around)


def _around(
    entry: ManifestEntry,
    recorded: Fingerprint,
    present: Fingerprint,
    fields: tuple[Difference, ...],
    checkpoint: Checkpoint,
    declaration: Declaration,
) -> tuple[Difference, ...]:
    if recorded.source != present.source:
        return (_files("source", recorded.source, present.source),)
    if (recorded.listing, recorded.configs) == (present.listing, present.configs):
        return ()
    told_already = any(found.fact.startswith(_IN_ARCHITECTURE) for found in fields)
    same = architecture_digest(checkpoint, declaration) == entry.architecture
    if not same and recorded.configs != present.configs:
        return (_files("architecture", recorded.configs, present.configs),)
    if not same and not told_already:
        there, here = f"#{entry.architecture[:12]}", "other names, types or shapes of tensors"
        return (Difference("architecture", there, here, FULL),)
    if recorded.listing == present.listing:
        return ()
    return (Difference("checkpoint", _sum(recorded), _sum(present), OTHER_WEIGHTS),)


def _files(fact: str, recorded: Mapping[str, str], present: Mapping[str, str]) -> Difference:
    names = sorted(
        name for name in recorded.keys() | present.keys() if recorded.get(name) != present.get(name)
    )

    def told(side: Mapping[str, str]) -> str | None:
        return ", ".join(f"{name} #{side[name]}" for name in names if name in side) or None

    cost = OLD_CODE if fact == "source" else FULL
    return Difference(fact, told(recorded), told(present), cost)


def _sum(found: Fingerprint) -> str:
    return f"{found.files} files of {found.size_bytes:,} bytes"
