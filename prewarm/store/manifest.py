"""The manifest: what a builder publishes, signed, in one file of its own.

The door to this part of the store; the work stands in ``manifest_values.py`` (what it holds),
``manifest_files.py`` (reading and writing), ``manifest_rows.py`` (from the database),
``manifest_text.py`` (canonical JSON) and ``manifest_reading.py`` (strict checks).
"""

from __future__ import annotations

from prewarm.store.manifest_files import (
    LARGEST_MANIFEST_BYTES,
    ReadManifest,
    manifest_path,
    manifest_paths,
    manifests_directory,
    read_manifest,
    read_manifests,
    write_manifest,
)
from prewarm.store.manifest_rows import build_manifest, manifest_entries
from prewarm.store.manifest_text import canonical_json, without_paths
from prewarm.store.manifest_values import (
    FORMAT,
    Manifest,
    ManifestBundle,
    ManifestCall,
    ManifestCompile,
    ManifestEntry,
    ManifestShapeSet,
)

__all__ = [
    "FORMAT",
    "LARGEST_MANIFEST_BYTES",
    "Manifest",
    "ManifestBundle",
    "ManifestCall",
    "ManifestCompile",
    "ManifestEntry",
    "ManifestShapeSet",
    "ReadManifest",
    "build_manifest",
    "canonical_json",
    "manifest_entries",
    "manifest_path",
    "manifest_paths",
    "manifests_directory",
    "read_manifest",
    "read_manifests",
    "without_paths",
    "write_manifest",
]
