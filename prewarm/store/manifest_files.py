"""The manifests in ``cache_dir/manifests``: writing one's own, reading everybody's.

Owns file names, the size limit, and that generations only rise. Whether a manifest is trusted is
``deploy``'s to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prewarm.errors import ConfigError, ManifestUnavailable
from prewarm.store.limited_file import read_limited_file
from prewarm.store.manifest_reading import Reading
from prewarm.store.manifest_text import canonical_json, paths_in
from prewarm.store.manifest_values import Manifest
from prewarm.store.signing import SigningKey, verify
from prewarm.store.strict_json import parse_strictly
from prewarm.store.timestamp import epoch_seconds
from prewarm.store.whole_file import make_directory, write_whole

#: 10,000 entries with their proofs are about 40 MB.
LARGEST_MANIFEST_BYTES = 64 << 20

_BUILDER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class ReadManifest:
    """A manifest as it was read: well-formed, not yet trusted."""

    path: Path
    manifest: Manifest
    signatures: tuple[dict[str, str], ...]
    signed: dict[str, Any]

    def signed_by(self, trusted: Iterable[str]) -> str | None:
        """Return the id of a trusted key that signed it, or None.

        Raises:
            ConfigError: a trusted key has no proper form.
        """
        return verify(canonical_json(self.signed), self.signatures, trusted)


def manifests_directory(cache_dir: Path) -> Path:
    """Return where the manifests of a cache_dir lie."""
    return cache_dir / "manifests"


def manifest_path(cache_dir: Path, builder: str) -> Path:
    """Return where a builder's manifest lies.

    Raises:
        ConfigError: the builder's name is no file name.
    """
    if not _BUILDER.fullmatch(builder):
        raise ConfigError(f"builder {builder!r}: use letters, digits, `.`, `_` and `-` alone")
    return manifests_directory(cache_dir) / f"{builder}{_SUFFIX}"


def write_manifest(cache_dir: Path, manifest: Manifest, key: SigningKey) -> Manifest:
    """Sign a manifest, write it whole, and return it with the generation that it got.

    Raises:
        NoSpace: no space left.
        NotWritable: the cache_dir cannot be written.
    """
    path = manifest_path(cache_dir, manifest.builder)
    last_generation, last_at = _last(path, manifest)
    # Readers refuse what is older than what they have seen, also after the clock was put back.
    written = replace(
        manifest,
        generation=max(last_generation, manifest.generation) + 1,
        generated_at=max(last_at, manifest.generated_at),
    )
    signed = written.to_dict()
    for text in paths_in(signed, _home()):
        raise RuntimeError(f"a manifest would say {text[:200]!r}, a path of this machine")
    body = {"signatures": [key.sign(canonical_json(signed))], "signed": signed}
    make_directory(path.parent)
    write_whole(path, canonical_json(body) + b"\n")
    return written


def read_manifests(
    cache_dir: Path, *, limit_bytes: int = LARGEST_MANIFEST_BYTES
) -> tuple[tuple[ReadManifest, ...], tuple[str, ...]]:
    """Return the well-formed manifests by builder, and one line for each that was refused.

    A cache_dir without manifests gives neither.
    """
    good: list[ReadManifest] = []
    problems: list[str] = []
    try:
        paths = manifest_paths(cache_dir)
    except ManifestUnavailable as error:
        return (), (str(error),)
    for path in paths:
        try:
            good.append(read_manifest(path, limit_bytes=limit_bytes))
        except ManifestUnavailable as error:
            problems.append(str(error))
    return tuple(good), tuple(problems)


def manifest_paths(cache_dir: Path) -> tuple[Path, ...]:
    """Return where a cache_dir has manifests, by builder; none where there is no directory.

    Raises:
        ManifestUnavailable: the directory cannot be read.
    """
    directory = manifests_directory(cache_dir)
    try:
        names = sorted(found.name for found in directory.iterdir())
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ManifestUnavailable(
            f"{directory}: cannot be read ({error.strerror}); give this user access"
        ) from error
    # Hidden files are those on their way.
    return tuple(
        directory / name for name in names if not name.startswith(".") and name.endswith(_SUFFIX)
    )


def read_manifest(path: Path, *, limit_bytes: int = LARGEST_MANIFEST_BYTES) -> ReadManifest:
    """Read one manifest, strictly.

    Raises:
        ManifestUnavailable: it cannot be read, is too large, or is no manifest of that builder.
    """
    body = _parse(read_limited(path, limit_bytes), path)
    signatures = _signatures(body, path)
    try:
        manifest = Manifest.from_dict(body["signed"])
    except ManifestUnavailable as error:
        raise ManifestUnavailable(f"{path}: {error}", code=error.code) from None
    return ReadManifest(path, named_for_builder(path, manifest), signatures, body["signed"])


def named_for_builder(path: Path, manifest: Manifest) -> Manifest:
    """Return a manifest that lies under its own builder's name.

    Raises:
        ManifestUnavailable: it is another's.
    """
    if path.name != f"{manifest.builder}{_SUFFIX}":
        raise ManifestUnavailable(
            f"{path}: is the manifest of builder {manifest.builder[:60]!r} under another's name; "
            "remove it",
            code="bad_manifest",
        )
    return manifest


def _home() -> str:
    try:
        return str(Path.home())
    except RuntimeError:
        # A service user without a home.
        return ""


def read_limited(path: Path, limit_bytes: int) -> bytes:
    """Return the content of a file that is no longer than a limit.

    Raises:
        ManifestUnavailable: it cannot be read, is no file, or is longer.
    """
    try:
        return read_limited_file(path, limit_bytes)
    except OSError as error:
        raise ManifestUnavailable(
            f"{path}: cannot be read ({error.strerror}); give this user access to it"
        ) from error
    except ValueError as error:
        raise ManifestUnavailable(f"{path}: {error}", code="bad_manifest") from None


def _parse(data: bytes, path: Path) -> dict[str, Any]:
    try:
        body = parse_strictly(data)
    except (ValueError, RecursionError) as error:
        raise ManifestUnavailable(
            f"{path}: is no JSON ({error}); the builder's next `prewarm scan` writes it again",
            code="bad_manifest",
        ) from error
    if not isinstance(body, dict) or body.keys() != {"signatures", "signed"}:
        raise ManifestUnavailable(
            f"{path}: is no manifest (expected `signatures` and `signed`)", code="bad_manifest"
        )
    return body


def _signatures(body: dict[str, Any], path: Path) -> tuple[dict[str, str], ...]:
    reading = Reading()
    found = []
    for number, row in enumerate(reading.rows(body["signatures"], "signatures")):
        table = reading.mapping(row, f"signatures[{number}]")
        found.append(
            {
                name: reading.text(table.get(name), f"signatures[{number}].{name}")
                for name in ("keyid", "sig")
            }
        )
    try:
        reading.refuse()
    except ManifestUnavailable as error:
        raise ManifestUnavailable(f"{path}: {error}", code="bad_manifest") from None
    return tuple(found)


def _last(path: Path, manifest: Manifest) -> tuple[int, str]:
    """Return the generation and the time of the manifest that lies there."""
    if not path.exists():
        return 0, ""
    try:
        last = read_manifest(path).manifest
    except ManifestUnavailable:
        # Damaged, or of another format: whatever its generation was, it rose by one a writing, so
        # it is below the seconds since 1970.
        return int(epoch_seconds(manifest.generated_at)), ""
    return last.generation, last.generated_at
