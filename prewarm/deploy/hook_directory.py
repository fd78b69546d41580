"""Where a deployment's private directory lies unless it is told."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from prewarm.config import user_cache_dir


def default_into(models: Sequence[str], environ: Mapping[str, str]) -> Path:
    """Return the private directory of a set of models, below the user's cache directory."""
    names = "\n".join(sorted(models))
    digest = hashlib.sha256(names.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return user_cache_dir(environ) / "deployments" / digest
