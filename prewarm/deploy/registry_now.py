"""Whether a registry still holds what an entry was built from: declaration, source, checkpoint.

Owns the quick look, which the hook takes at every start: equal digests need no parsing. Only where
they differ is ``registry_changes.py`` imported, and with it pydantic. A registry that is not there
or cannot be read, as on most deployments, changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from prewarm.environment import Difference
from prewarm.errors import PrewarmError
from prewarm.registry.checkpoint import Checkpoint, CheckpointFile
from prewarm.registry.fingerprint import (
    Fingerprint,
    checkpoint_at,
    declarations_digest,
    look_again,
)
from prewarm.store.manifest import ManifestEntry

#: Tells the digest of a file that was read before, None if nobody knows it.
Known = Callable[[Checkpoint], Callable[[CheckpointFile], str | None]]

#: What a checkpoint with other weights costs.
OTHER_WEIGHTS = "nothing is compiled again for weights of the same shapes, but it is not proven"


def changed_since(
    entry: ManifestEntry, registry: Path | None, *, known: Known | None = None
) -> tuple[Difference, ...] | None:
    """Return what differs in the registry from what the entry was built from.

    None where it cannot be told. With ``known`` the checkpoint's content is compared too, as far as
    that needs no reading.
    """
    recorded = Fingerprint.from_dict(entry.proof.get("source_files"))
    declared = entry.proof.get("declared")
    if registry is None or recorded is None or not isinstance(declared, dict):
        return None
    root = Path(os.path.realpath(registry))
    place = root / recorded.place
    try:
        if not os.path.lexists(place):
            return None
        if not _is_same(recorded, root):
            from prewarm.deploy.registry_changes import registry_changes

            found = registry_changes(entry, recorded, declared, root=root)
            if found is None or found:
                return found
        return _content(entry, checkpoint_at(place, root=root), known) if known else ()
    except OSError:
        return None


def _is_same(recorded: Fingerprint, root: Path) -> bool:
    if declarations_digest(root / recorded.place, root=root) != recorded.declarations:
        return False
    try:
        return look_again(recorded, root=root) == recorded
    except PrewarmError:
        # Its directory of source is gone, or holds too much: told by whoever parses it.
        return False


def _content(
    entry: ManifestEntry, checkpoint: Checkpoint, known: Known
) -> tuple[Difference, ...] | None:
    from prewarm.registry.content import quick_content_digest

    try:
        digest = quick_content_digest(checkpoint, known(checkpoint))
    except PrewarmError:
        return None
    if digest in (None, entry.checkpoint):
        return ()
    here, there = f"content #{digest[:12]}", f"content #{entry.checkpoint[:12]}"
    return (Difference("checkpoint", there, here, OTHER_WEIGHTS),)
