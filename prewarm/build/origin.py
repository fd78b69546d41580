"""The origin of a build, as its proof records it: the declaration, its source, the checkpoint.

``explain`` and the hook compare it with the registry of a later day (``deploy/registry_now.py``).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from prewarm.build.job import Job
from prewarm.errors import PrewarmError
from prewarm.registry.fingerprint import take_fingerprint


def origin(job: Job, registry: Path | None) -> dict[str, Any]:
    """Return what a proof holds of where its build came from.

    Without a fingerprint, where it cannot be taken, a later change is found by the next scan alone.
    """
    fingerprint = None
    if registry is not None:
        root = Path(os.path.realpath(registry))
        try:
            fingerprint = take_fingerprint(
                job.checkpoint,
                root=root,
                file=root / job.declaration.file.relative_to(root),
                source_directories=job.declaration.source_directories(),
            ).to_dict()
        except (OSError, ValueError, PrewarmError):
            # A file that vanished just now, or a declaration outside the registry.
            fingerprint = None
    return {"declared": job.declaration.recorded(), "source_files": fingerprint}
