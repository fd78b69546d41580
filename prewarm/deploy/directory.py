"""A cache directory that can be read from here, as a source of manifests and bundles.

Where others can write it, bundles are copied to a place of one's own before they are unpacked, so
that nobody changes them between the check and the unpacking.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from prewarm.deploy.deadline import Deadline
from prewarm.deploy.keep import Keep
from prewarm.deploy.outcome import Tell
from prewarm.deploy.private import BundleFile
from prewarm.deploy.published import Manifests, manifests_in
from prewarm.deploy.source import News, Wished
from prewarm.errors import NotWarm
from prewarm.store.manifest import manifests_directory


class Directory:
    """A cache directory that can be read from here."""

    def __init__(
        self, path: Path, keys: Sequence[str], keep: Keep, deadline: Deadline, tell: Tell
    ) -> None:
        self._path = path
        self._keys = keys
        self._keep = keep
        self._deadline = deadline
        self._tell = tell
        self._as_is = True
        self._news = News(keep, os.path.realpath(path))

    def where(self) -> str:
        """Return the directory of the manifests."""
        return f"{manifests_directory(self._path)}{os.sep}"

    def manifests(self) -> Manifests:
        """Read every builder's manifest.

        Raises:
            ManifestUnavailable: the directory is not there, or not trusted.
        """
        self._news.load()
        found = manifests_in(self._path, uid=os.geteuid(), keys=self._keys)
        self._as_is = found.as_is
        return self._news.admit(found)

    def remember(self) -> None:
        """Keep which manifests were read."""
        self._news.remember()

    def cache_dir(self) -> Path:
        """Return the directory, or where its bundles are copied to if others can write there."""
        return self._path if self._as_is else self._keep.place

    def wish(self, model: str, facts: dict[str, str | None] | None, wait_s: float) -> Wished | None:
        """Return None: who writes there is not known."""
        return None

    @contextmanager
    def at_hand(self, bundles: Sequence[BundleFile]) -> Iterator[None]:
        """Have bundles where nobody else can change them between the check and the unpacking.

        Raises:
            PrewarmError: one cannot be had.
        """
        if self._as_is:
            yield
            return
        from prewarm.deploy.download import fetched

        with fetched(bundles, self._keep, self._opened, self._deadline, self._tell):
            yield

    @contextmanager
    def _opened(self, bundle: BundleFile, offset: int) -> Iterator[tuple[int, Iterator[bytes]]]:
        from prewarm.store.bundle_format import bundle_path

        path = bundle_path(self._path, bundle.sha256)
        try:
            # Not to wait for the writer of a pipe that somebody put there.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise NotWarm(f"{path}: cannot be read ({error.strerror})", code="corrupt") from error
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            file.seek(offset)
            yield offset, iter(lambda: file.read(1 << 20), b"")
