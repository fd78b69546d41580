"""What is published, ready to be answered: the manifests as one body, and who stands in them.

Owns reading the manifests again when they change, and only then.

- A look is a few ``stat`` calls in a thread, one at a time for all who ask meanwhile, since the
  cache_dir may be a network file system.
- A manifest that is not well-formed or not trusted is left out, and told once.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import zstandard
from anyio import to_thread

from prewarm.deploy.published import trusted_manifests
from prewarm.store.manifest import ReadManifest, canonical_json, manifests_directory
from prewarm.store.status import Status

#: Much smaller than plain, and done in milliseconds.
_ZSTD_LEVEL, _GZIP_LEVEL = 6, 6

#: What tells one state of the directory from another.
_Stamp = tuple[tuple[str | int, ...], ...]


@dataclass(frozen=True, slots=True)
class Named:
    """An entry of a manifest, as far as it is told to who waits for it; ``json`` is all of it."""

    model: str
    environment_id: str
    status: Status
    reason: str | None
    code: str | None
    json: bytes


@dataclass(frozen=True, slots=True)
class Shelf:
    """Everything that is published at one moment.

    Entries by model and by alias, builders by the digest of a bundle that they publish.
    """

    body: bytes
    digest: str
    named: Mapping[str, tuple[Named, ...]]
    builders: Mapping[str, str]
    encoded: dict[str, bytes] = field(default_factory=dict)

    def etag(self, encoding: str | None) -> str:
        """Return the strong entity tag of the body in an encoding."""
        return f'"{self.digest}"' if encoding is None else f'"{self.digest}-{encoding}"'

    def encode(self, encoding: str | None) -> bytes:
        """Return the body in an encoding, made once."""
        if encoding is None:
            return self.body
        if encoding not in self.encoded:
            self.encoded[encoding] = _ENCODE[encoding](self.body)
        return self.encoded[encoding]


class Shelves:
    """The present shelf of a cache_dir."""

    def __init__(self, cache_dir: Path, *, uid: int, tell: Callable[[str], None]) -> None:
        self._cache_dir = cache_dir
        self._uid = uid
        self._tell = tell
        self._shelf: Shelf | None = None
        self._stamp: _Stamp | None = None
        self._refused: tuple[str, ...] = ()
        self._looking: asyncio.Task[Shelf] | None = None

    async def present(self) -> Shelf:
        """Return what is published now, which may be nothing.

        Raises:
            ManifestUnavailable: the directory cannot be read, or is not trusted.
        """
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(to_thread.run_sync(self._look))
        # Who goes away in the meantime does not end the look of the others.
        return await asyncio.shield(self._looking)

    def _look(self) -> Shelf:
        stamp = _stamp(self._cache_dir)
        if self._shelf is not None and stamp is not None and stamp == self._stamp:
            return self._shelf
        trusted, refused = self._read()
        for line in refused:
            if line not in self._refused:
                self._tell(line)
        self._shelf, self._refused, self._stamp = shelf_of(trusted), refused, stamp
        return self._shelf

    def _read(self) -> tuple[tuple[ReadManifest, ...], tuple[str, ...]]:
        try:
            manifests_directory(self._cache_dir).stat()
        except FileNotFoundError:
            # A builder that published nothing yet.
            return (), ()
        except OSError:
            pass  # told by whoever reads it
        return trusted_manifests(self._cache_dir, uid=self._uid)


def shelf_of(manifests: tuple[ReadManifest, ...]) -> Shelf:
    """Lay out manifests: each as it was signed."""
    parts = (
        canonical_json({"signatures": list(one.signatures), "signed": one.signed})
        for one in manifests
    )
    body = b'{"manifests":[' + b",".join(parts) + b"]}\n"
    named: dict[str, tuple[Named, ...]] = {}
    builders: dict[str, str] = {}
    for one in manifests:
        for entry, signed in zip(one.manifest.entries, one.signed["entries"], strict=True):
            found = Named(
                entry.model,
                entry.environment,
                entry.status,
                entry.reason,
                entry.code,
                canonical_json(signed),
            )
            for name in (entry.model, *entry.aliases):
                named[name] = (*named.get(name, ()), found)
            builders.setdefault(entry.bundle.sha256, one.manifest.builder)
    return Shelf(body, hashlib.sha256(body).hexdigest(), named, builders)


def _stamp(cache_dir: Path) -> _Stamp | None:
    """Look at owners, modes and times; None where something is missing or refuses."""
    directory = manifests_directory(cache_dir)
    try:
        with os.scandir(directory) as found:
            files: list[tuple[str | int, ...]] = sorted(
                (one.name, *_signs(one.stat())) for one in found
            )
        return (_signs(cache_dir.stat())[:4], _signs(directory.stat()), *files)
    except OSError:
        return None


def _signs(found: os.stat_result) -> tuple[int, ...]:
    # The inode tells two files apart that came within one tick of the file system's clock.
    return (
        found.st_dev,
        found.st_ino,
        found.st_mode,
        found.st_uid,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )


def _zstd(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(body)


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, _GZIP_LEVEL, mtime=0)


_ENCODE: Mapping[str, Callable[[bytes], bytes]] = {"zstd": _zstd, "gzip": _gzip}
