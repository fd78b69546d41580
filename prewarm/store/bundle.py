"""Bundles: the one packed, immutable file with the compile caches of an entry.

The door to this part of the store; the work stands in ``bundle_format.py`` (what a bundle is),
``bundle_pack.py``, ``bundle_child.py`` (packing in a process of its own) and ``bundle_unpack.py``.
"""

from __future__ import annotations

from prewarm.store.bundle_child import pack_apart
from prewarm.store.bundle_format import BundleInfo, Limits, ListedFile, bundle_path
from prewarm.store.bundle_pack import pack
from prewarm.store.bundle_unpack import unpack

__all__ = ["BundleInfo", "Limits", "ListedFile", "bundle_path", "pack", "pack_apart", "unpack"]
