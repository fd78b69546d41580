"""Adoption: an empty state takes over the bundles that the cache_dir's manifests name.

Caches are code, so a manifest that others may have written is passed over, by the hook's own rule
(``store/trust.py``). Nothing is called warm by adoption: a bundle is only offered for its build
key, and each entry is proven against it again, here. So a lost state directory costs proofs, not
builds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from prewarm.build.bench import Bench
from prewarm.store.bundle import bundle_path
from prewarm.store.manifest import (
    ManifestEntry,
    ReadManifest,
    manifests_directory,
    read_manifests,
)
from prewarm.store.status import Status
from prewarm.store.trust import distrust


def adopt(bench: Bench) -> int:
    """Record the bundles of all manifests if the database has no entries; return how many."""
    database, cache_dir = bench.database, bench.settings.cache_dir
    if database.entries():
        return 0
    if any(_distrusted(path) for path in (cache_dir, manifests_directory(cache_dir))):
        return 0
    manifests, _ = read_manifests(cache_dir)
    # All or none: whoever dies in the middle would leave a state that is not empty any more.
    with database.transaction():
        return sum(_adopt_all(bench, read) for read in manifests if not _distrusted(read.path))


def _adopt_all(bench: Bench, read: ReadManifest) -> int:
    adopted = 0
    for entry in read.manifest.entries:
        packed = bundle_path(bench.settings.cache_dir, entry.bundle.sha256)
        if not packed.is_file() or packed.stat().st_size != entry.bundle.size_bytes:
            continue
        bench.database.add_bundle(
            entry.bundle.sha256,
            build_key=entry.build_key,
            architecture=entry.architecture,
            environment_id=entry.environment,
            size_bytes=entry.bundle.size_bytes,
            unpacked_bytes=entry.bundle.unpacked_bytes,
            files=entry.bundle.files,
            record=_record(entry),
            at=bench.at(),
        )
        if read.manifest.builder == bench.settings.builder:
            _keep(bench, entry)
        adopted += 1
    return adopted


def _keep(bench: Bench, entry: ManifestEntry) -> None:
    """Keep what our own manifest says of an entry, since the first publishing writes it anew."""
    bench.database.put_entry(
        entry.model,
        entry.environment,
        at=bench.at(),
        status=Status.STALE,
        reason="adopted from the cache_dir; not proven by this state directory yet",
        code="adopted",
        checkpoint_digest=entry.checkpoint,
        architecture=entry.architecture,
        build_key=entry.build_key,
        bundle_sha256=entry.bundle.sha256,
        record=_record(entry),
    )


def _record(entry: ManifestEntry) -> dict[str, Any]:
    record = entry.to_dict()
    del record["model"], record["aliases"]
    return record


def _distrusted(path: Path) -> bool:
    try:
        return distrust(path, uid=os.geteuid()) is not None
    except OSError:
        return True
