"""Doctor's check of what is published: which entries would start warm here, and what differs."""

from __future__ import annotations

import os
from collections.abc import Mapping

from prewarm.cli.finding import Finding
from prewarm.config import Settings
from prewarm.deploy.explain import Here, explain_all
from prewarm.deploy.published import read_published
from prewarm.errors import PrewarmError

#: A finding for each entry up to this many; the rest are counted.
TOLD = 5


def check_published(
    settings: Settings, interpreter: tuple[str, ...], environ: Mapping[str, str]
) -> list[Finding]:
    """Compare every published entry with this machine; nothing where no manifest is trusted."""
    here = Here(interpreter, environ, settings.registry, settings.state_dir)
    try:
        published = read_published(settings.cache_dir, uid=os.geteuid(), warn=lambda line: None)
        told = explain_all(published, here)
    except PrewarmError:
        # Whether the directory can be read and trusted is the check of the places.
        return []
    if not told:
        return []
    cold = [one for one in told if not one.warm]
    counted = f"{len(told) - len(cold)} of {len(told)} entries start warm here"
    if not cold:
        return [Finding("published", "ok", counted)]
    findings = [
        Finding("published", "warn", one.sentence(), f"prewarm explain {one.model}")
        for one in cold[:TOLD]
    ]
    return [Finding("published", "warn", counted, "see below, or scan here"), *findings]
