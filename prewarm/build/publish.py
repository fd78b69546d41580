"""Publishing: this builder's manifest, written anew from the database when an entry came to rest.

A manifest equal to the one that lies there is not written again, so that readers see no new
generation without news.
"""

from __future__ import annotations

import threading

from prewarm import __version__
from prewarm.build.bench import Bench
from prewarm.errors import ManifestUnavailable
from prewarm.store.manifest import (
    Manifest,
    build_manifest,
    manifest_path,
    read_manifest,
    write_manifest,
)
from prewarm.store.signing import load_or_create_key
from prewarm.store.status import PUBLISHED

#: One writer at a time: workers publish from threads of their own.
_WRITING = threading.Lock()


def publish(bench: Bench) -> Manifest:
    """Write ``cache_dir/manifests/<builder>.json`` from what the database holds, if it has news.

    Raises:
        NoSpace: no space left.
        NotWritable: the cache_dir cannot be written.

    """
    with _WRITING:
        return _publish(bench)


def _publish(bench: Bench) -> Manifest:
    settings, database = bench.settings, bench.database
    manifest = build_manifest(
        builder=settings.builder,
        version=__version__,
        entries=database.entries_in(PUBLISHED),
        checkpoints=database.checkpoints(),
        environments=database.environments(),
        at=bench.at(),
    )
    key = load_or_create_key(settings.state_dir, settings.signing_key)
    present = _present(bench, key.public)
    if present is not None and _news(present) == _news(manifest):
        return present
    # Else a power cut could leave a manifest of entries that the database knows nothing of.
    database.make_lasting()
    return write_manifest(settings.cache_dir, manifest, key)


def _present(bench: Bench, public: str) -> Manifest | None:
    """Return the manifest that lies there, if it is well-formed and signed by our own key."""
    settings = bench.settings
    try:
        found = read_manifest(manifest_path(settings.cache_dir, settings.builder))
    except ManifestUnavailable:
        return None
    return found.manifest if found.signed_by([public]) else None


def _news(manifest: Manifest) -> dict[str, object]:
    told = manifest.to_dict()
    return {name: told[name] for name in ("environments", "entries", "version")}
