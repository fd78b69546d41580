"""From the rows of the database to the values of the manifest. Pure.

Owns which entries are published: those with a proven bundle whose checkpoint is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from prewarm.errors import ManifestUnavailable, StoreCorrupt
from prewarm.store.manifest_reading import Reading
from prewarm.store.manifest_text import without_paths
from prewarm.store.manifest_values import Manifest, ManifestEntry
from prewarm.store.status import PUBLISHED

# For types alone: the tables bring sqlite-utils, too slow to import for a hook's manifests.
if TYPE_CHECKING:
    from prewarm.store.checkpoints import CheckpointRow
    from prewarm.store.entries import Entry


def manifest_entries(
    entries: Iterable[Entry], checkpoints: Iterable[CheckpointRow]
) -> tuple[ManifestEntry, ...]:
    """Return the manifest entries of what is warm or partial, with the aliases of the checkpoints.

    Raises:
        StoreCorrupt: a record in the database is no manifest entry.
    """
    aliases = {found.name: found.aliases for found in checkpoints}
    return tuple(
        _entry(entry, aliases.get(entry.model, ()))
        for entry in sorted(entries, key=lambda entry: (entry.model, entry.environment_id))
        if entry.status in PUBLISHED and entry.record is not None
    )


def build_manifest(
    *,
    builder: str,
    version: str,
    entries: Iterable[Entry],
    checkpoints: Iterable[CheckpointRow],
    environments: Mapping[str, Mapping[str, str | None]],
    at: str,
) -> Manifest:
    """Return the manifest of a builder; ``write_manifest`` gives it its generation.

    Raises:
        StoreCorrupt: a record is no manifest entry, or its environment was never recorded.
    """
    published = manifest_entries(entries, checkpoints)
    named = sorted({entry.environment for entry in published})
    missing = [name for name in named if name not in environments]
    if missing:
        raise StoreCorrupt(f"environment {missing[0]}: is named by an entry but not recorded")
    return Manifest(
        builder=builder,
        version=version,
        environments={name: without_paths(dict(environments[name])) for name in named},
        entries=published,
        generated_at=at,
    )


def _entry(entry: Entry, aliases: tuple[str, ...]) -> ManifestEntry:
    reading = Reading()
    record = entry.record or {}
    # The variables are set as they are; all else is told to people.
    value = {
        **without_paths(record),
        "variables": record.get("variables"),
        "model": entry.model,
        "aliases": list(aliases),
    }
    found = ManifestEntry.read(value, entry.model, reading)
    try:
        reading.refuse()
    except ManifestUnavailable as error:
        raise StoreCorrupt(f"record of {error}; run `prewarm scan` to build it again") from error
    return found
