"""Adoption: an empty state takes over the bundles that the cache_dir's manifests name.

Nothing is called warm by that: a bundle is only offered for its build key, and each entry is proven
against it again, here. So a lost state directory costs proofs, not builds.
"""

from __future__ import annotations

from prewarm.build.pipeline import Bench
from prewarm.store.bundle import bundle_path
from prewarm.store.manifest import read_manifests


def adopt(bench: Bench) -> int:
    """Record the bundles of all manifests if the database has no entries; return how many."""
    database, cache_dir = bench.database, bench.settings.cache_dir
    if database.entries():
        return 0
    manifests, _ = read_manifests(cache_dir)
    adopted = 0
    for read in manifests:
        for entry in read.manifest.entries:
            packed = bundle_path(cache_dir, entry.bundle.sha256)
            if not packed.is_file() or packed.stat().st_size != entry.bundle.size_bytes:
                continue
            database.add_bundle(
                entry.bundle.sha256,
                build_key=entry.build_key,
                architecture=entry.architecture,
                environment_id=entry.environment,
                size_bytes=entry.bundle.size_bytes,
                unpacked_bytes=entry.bundle.unpacked_bytes,
                files=entry.bundle.files,
                at=bench.at(),
            )
            adopted += 1
    return adopted
