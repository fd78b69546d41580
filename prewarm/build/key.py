"""The build key: the name of a bundle's content.

Made of all that reaches the graph (design.md §4). Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

#: Raised when bundles of an older prewarm must not be used any more.
FORMAT = 1


def build_key(
    *,
    architecture: str,
    environment_id: str,
    declared: Mapping[str, Any],
    own_graph_of: str | None = None,
) -> str:
    """Return the key (hex sha256).

    ``declared`` is ``Declaration.key_facts()``; ``own_graph_of`` is the digest of a checkpoint
    whose graph was found to depend on its weights' values, so that its bundle fits no other.
    """
    parts = {
        "format": FORMAT,
        "architecture": architecture,
        "environment": environment_id,
        "declared": declared,
        "own_graph_of": own_graph_of,
    }
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
