"""What a state directory remembers of its registry's root, from one process to the next.

Owns the file ``registry.json``. With it a service that starts before the registry is mounted, or a
scan by a timer, takes an empty mount point for what it is. What cannot be read is not remembered.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from prewarm.registry.presence import Presence, RootSeen, registry_is_there
from prewarm.store.checkpoints import Checkpoints
from prewarm.store.whole_file import write_whole

ROOT_SEEN_NAME = "registry.json"

#: A longer file is none of ours.
_MAX_BYTES = 1 << 20


def read_root_seen(state_dir: Path) -> RootSeen | None:
    """Return what is remembered of the root, None for nothing."""
    try:
        with (state_dir / ROOT_SEEN_NAME).open("rb") as file:
            return RootSeen.from_dict(json.loads(file.read(_MAX_BYTES)))
    except (OSError, ValueError, RecursionError):
        return None


def remember_root(state_dir: Path, presence: Presence) -> None:
    """Remember the root of a look that found it, if that is news.

    Raises:
        NoSpace: no space left.
        NotWritable: the state directory cannot be written.
    """
    seen = presence.seen
    if presence.is_there and seen is not None and seen != read_root_seen(state_dir):
        write_whole(state_dir / ROOT_SEEN_NAME, json.dumps(seen.to_dict()).encode() + b"\n")


def presence_of(registry: Path, state_dir: Path) -> Presence:
    """Look whether the registry is there, by what earlier processes saw of it.

    A reason why not ends with the way out for a registry that lies elsewhere for good.
    """
    found = registry_is_there(registry, read_root_seen(state_dir))
    if found.state not in ("unmounted", "empty"):
        return found
    way_out = f"; if it lies there for good now, remove {state_dir / ROOT_SEEN_NAME}"
    return replace(found, reason=f"{found.reason}{way_out}")


def untold(database: Checkpoints, presence: Presence) -> list[str]:
    """Return the checkpoints that may only seem to be missing: their disk is not mounted now."""
    if not presence.bare:
        return []
    rows = database.checkpoints()
    return [row.name for row in rows if not presence.can_tell(Path(os.path.realpath(row.path)))]
