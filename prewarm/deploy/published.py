"""What is published in a cache directory, as far as this reader trusts it.

Owns reading the manifests of all builders and joining each entry with its environment. Trust in a
local directory is ``trust.py``'s rule; what is refused is told and the rest is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prewarm.environment import Environment
from prewarm.errors import ManifestUnavailable
from prewarm.store.manifest import (
    ManifestEntry,
    ReadManifest,
    manifests_directory,
    read_manifests,
)
from prewarm.store.trust import distrust, require_trusted

#: The variable that carries a declared thread count to the deployment.
THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True, slots=True)
class Published:
    """An entry of a manifest with the environment it was proven in and the manifest's time."""

    entry: ManifestEntry
    environment: Environment
    generated_at: str

    @property
    def threads(self) -> int:
        """The thread count that the declaration states; 0 for the machine's own."""
        stated = self.entry.variables.get(THREADS, "")
        return int(stated) if stated.isdecimal() else 0


def read_published(
    cache_dir: Path, *, uid: int, warn: Callable[[str], None]
) -> tuple[Published, ...]:
    """Return the entries of every trusted manifest; ``warn`` gets a line for each refused one.

    Raises:
        ManifestUnavailable: the directory is not trusted, or no manifest in it can be read.
    """
    trusted, refused = trusted_manifests(cache_dir, uid=uid)
    if not trusted:
        raise ManifestUnavailable(
            refused[0]
            if refused
            else f"{manifests_directory(cache_dir)}{os.sep} holds no manifest; run `prewarm scan` "
            "or name another directory with --manifest"
        )
    for line in refused:
        warn(line)
    return tuple(
        Published(
            entry,
            Environment.from_facts(read.manifest.environments[entry.environment]),
            read.manifest.generated_at,
        )
        for read in trusted
        for entry in read.manifest.entries
    )


def trusted_manifests(
    cache_dir: Path, *, uid: int
) -> tuple[tuple[ReadManifest, ...], tuple[str, ...]]:
    """Return the manifests that the reader ``uid`` trusts, and a line for each refused one.

    Raises:
        ManifestUnavailable: the directory is not there, or not trusted.
    """
    require_trusted((cache_dir, manifests_directory(cache_dir)), uid=uid)
    manifests, problems = read_manifests(cache_dir)
    trusted: list[ReadManifest] = []
    refused = list(problems)
    for read in manifests:
        try:
            against = distrust(read.path, uid=uid)
        except OSError as error:
            refused.append(f"{read.path}: cannot be looked at ({error.strerror})")
            continue
        if against is None:
            trusted.append(read)
        else:
            refused.append(against.sentence())
    return tuple(trusted), tuple(refused)
