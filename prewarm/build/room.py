"""Room for a build: whether the disks have enough free space to begin one.

Owns how much that is. A build that begins on a disk nearly full fails after an hour instead of
before it, and takes the room of those that could still end.
"""

from __future__ import annotations

import os
from pathlib import Path

from prewarm.config import Settings
from prewarm.store.bundles import Bundles

#: What a build of unknown size needs: torch's scratch, the unpacked cache, the packed bundle.
LEAST_SCRATCH_BYTES = 1 << 30
LEAST_CACHE_BYTES = 64 << 20

#: A build holds its cache unpacked, packed, and once more unpacked for its proof.
COPIES = 3


def room_for_build(
    settings: Settings,
    bundles: Bundles,
    *,
    least_scratch_bytes: int = LEAST_SCRATCH_BYTES,
    least_cache_bytes: int = LEAST_CACHE_BYTES,
) -> str | None:
    """Return why no build should begin now, or None if there is room; see ``NoSpace`` for later."""
    packed_bytes, unpacked_bytes = bundles.largest_bundle()
    wanted = (
        ("state_dir", settings.state_dir, max(least_scratch_bytes, COPIES * unpacked_bytes)),
        ("cache_dir", settings.cache_dir, max(least_cache_bytes, COPIES * packed_bytes)),
    )
    for name, directory, needed_bytes in wanted:
        free_bytes = _free_bytes(directory)
        if free_bytes is not None and free_bytes < needed_bytes:
            return (
                f"waits for room: {name} {directory} has {_megabytes(free_bytes)} free and a "
                f"build needs {_megabytes(needed_bytes)}; free some space there"
            )
    return None


def _free_bytes(directory: Path) -> int | None:
    """Return the free space; None where it cannot be told, as on some FUSE."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize if found.f_blocks else None


def _megabytes(size_bytes: int) -> str:
    # In whole ones, so that the sentence does not change with every byte.
    return f"{size_bytes / 1e6:,.0f} MB"
