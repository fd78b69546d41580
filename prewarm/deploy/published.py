"""What is published in a cache directory, as far as this reader trusts it.

Owns reading the manifests of all builders and joining each entry with its environment. Trust in a
local directory is ``trust.py``'s rule; where it does not hold, a key must have signed a manifest.
What is refused is told and the rest is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from prewarm.environment import Environment
from prewarm.errors import ManifestUnavailable
from prewarm.store.manifest import (
    Manifest,
    ManifestEntry,
    ReadManifest,
    manifest_paths,
    manifests_directory,
    read_manifest,
    read_manifests,
)
from prewarm.store.manifest_signed import read_signed_manifest
from prewarm.store.trust import Distrust, distrust, distrust_of, require_trusted

#: The variable that carries a declared thread count to the deployment.
THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a manifest is not used: the code, and one line."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Manifests:
    """The trusted manifests of one place, and why others are refused.

    ``as_is`` says that the place itself is trusted, so that its files need no copy of one's own.
    """

    manifests: tuple[Manifest, ...]
    refused: tuple[Refusal, ...]
    as_is: bool


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
    cache_dir: Path, *, uid: int, warn: Callable[[str], None], keys: Sequence[str] = ()
) -> tuple[Published, ...]:
    """Return the entries of every trusted manifest; ``warn`` gets a line for each refused one.

    Raises:
        ManifestUnavailable: the directory is not trusted, or no manifest in it can be read.
        ConfigError: a key has no proper form.
    """
    found = manifests_in(cache_dir, uid=uid, keys=keys)
    return published_of(found, where=f"{manifests_directory(cache_dir)}{os.sep}", warn=warn)


def published_of(
    found: Manifests, *, where: str, warn: Callable[[str], None]
) -> tuple[Published, ...]:
    """Return the entries of manifests; ``warn`` gets a line for each refused one.

    Raises:
        ManifestUnavailable: there is no manifest.
    """
    if not found.manifests:
        raise ManifestUnavailable(
            found.refused[0].text
            if found.refused
            else f"{where} holds no manifest; run `prewarm scan` or name another with --manifest",
            code=found.refused[0].code if found.refused else None,
        )
    for line in found.refused:
        warn(line.text)
    return tuple(
        Published(
            entry,
            Environment.from_facts(manifest.environments[entry.environment]),
            manifest.generated_at,
        )
        for manifest in found.manifests
        for entry in manifest.entries
    )


def manifests_in(cache_dir: Path, *, uid: int, keys: Sequence[str]) -> Manifests:
    """Return the manifests that the reader ``uid`` trusts: by owner and mode, or by a key.

    Raises:
        ManifestUnavailable: the directory is not there, or not trusted and there is no key.
        ConfigError: a key has no proper form.
    """
    against = distrust_of((cache_dir, manifests_directory(cache_dir)), uid=uid)
    if against is not None and not keys:
        raise ManifestUnavailable(against.sentence(), code="not_trusted")
    manifests: list[Manifest] = []
    refused: list[Refusal] = []
    for path in manifest_paths(cache_dir):
        try:
            if _is_trusted(path, uid=uid, keys=keys, directories=against):
                manifests.append(read_manifest(path).manifest)
            else:
                manifests.append(read_signed_manifest(path, keys))
        except ManifestUnavailable as error:
            refused.append(Refusal(error.code, str(error)))
    return Manifests(tuple(manifests), tuple(refused), as_is=against is None)


def _is_trusted(path: Path, *, uid: int, keys: Sequence[str], directories: Distrust | None) -> bool:
    """Whether a manifest is trusted without a signature.

    Raises:
        ManifestUnavailable: it is not, and there is no key that could have signed it.
    """
    if directories is not None:
        return False
    try:
        against = distrust(path, uid=uid)
    except OSError as error:
        raise ManifestUnavailable(f"{path}: cannot be looked at ({error.strerror})") from error
    if against is not None and not keys:
        raise ManifestUnavailable(against.sentence(), code="not_trusted")
    return against is None


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
