"""Bringing a bundle to a place of the reader's own, once for all hooks that start at the same time.

Owns the partial file, the lock, and when to begin anew or go on. Where the bytes come from is the
caller's; here they are only counted and digested.

- Under one lock, so that of fifty hooks one fetches and the others find it there.
- A partial file is gone on with, also by a later hook; its digest decides in the end, and if that
  is wrong the bundle is fetched once more from its beginning.
- A finished file is kept for a day for hooks that come later.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from prewarm.deploy.deadline import Deadline
from prewarm.deploy.http_connection import Broken
from prewarm.deploy.keep import Keep
from prewarm.deploy.listing import file_digest
from prewarm.deploy.outcome import Tell
from prewarm.deploy.private import BundleFile
from prewarm.errors import ManifestUnavailable, NoSpace, NotWarm
from prewarm.store.bundle_format import bundle_path
from prewarm.store.whole_file import make_directory, write_errors

#: How long a bundle, or a part of one, waits for another hook.
KEEP_S = 86_400.0

_DOWNLOADS = "downloads"
#: Attempts in a row that bring nothing.
_MOST_FAILURES = 3
_PAUSE_S = 0.5
_LOOK_S = 0.05

#: Opens a bundle at an offset, or at 0 if it cannot, and gives that offset and the pieces.
Opener = Callable[[BundleFile, int], AbstractContextManager[tuple[int, Iterator[bytes]]]]


class StartAnew(Exception):
    """The other side cannot go on at an offset."""


@contextmanager
def fetched(
    bundles: Sequence[BundleFile], keep: Keep, opened: Opener, deadline: Deadline, tell: Tell
) -> Iterator[None]:
    """Have bundles at a place of one's own; they are removed again where it is no lasting one.

    Raises:
        NotWarm: one cannot be had, or is not what was published.
        NoSpace: it does not fit.
        NotWritable: the place cannot be written.
    """
    downloads = [Download(bundle, keep, opened, deadline, tell) for bundle in bundles]
    try:
        for download in downloads:
            download.run()
    except ManifestUnavailable as error:
        raise NotWarm(str(error), code=error.code) from error
    try:
        yield
    finally:
        for download in () if keep.lasting else downloads:
            with suppress(OSError):
                download.target.unlink()


@dataclass(frozen=True, slots=True)
class Download:
    """One bundle on its way to a place."""

    bundle: BundleFile
    keep: Keep
    opened: Opener
    deadline: Deadline
    tell: Tell

    @property
    def target(self) -> Path:
        """Where it will lie."""
        return bundle_path(self.keep.place, self.bundle.sha256)

    @property
    def part(self) -> Path:
        """Where it lies before it is whole."""
        return self.keep.place / _DOWNLOADS / f"{self.bundle.sha256}.part"

    def run(self) -> None:
        """Fetch it, unless it is there already.

        Raises:
            NotWarm: it is not what was published.
            Broken: the connection broke off again and again.
            ManifestUnavailable: the other side lies, or the time is over.
            NoSpace: it does not fit.
            NotWritable: the place cannot be written.
        """
        self.keep.require_own()
        make_directory(self.part.parent)
        with self._alone(), write_errors(self.target):
            if self._is_there():
                return
            self._require_room()
            self._fetch()
            make_directory(self.target.parent)
            self.part.rename(self.target)
            remove_old(self.keep, now_s=time.time())

    def _fetch(self) -> None:
        failures, anew = 0, False
        while True:
            before = self._size_of_part()
            try:
                if self._append():
                    return
            except Broken:
                failures = 0 if self._size_of_part() > before else failures + 1
                if failures == _MOST_FAILURES:
                    raise
                self.deadline.pause(_PAUSE_S)
                continue
            except StartAnew:
                pass
            # What was resumed may have been begun from something else.
            self.part.unlink()
            if anew or not before:
                raise _unlike(self.bundle)
            anew = True

    def _append(self) -> bool:
        """Bring what is missing; return whether the whole has the right digest.

        Raises:
            StartAnew: the other side cannot go on where the part ends.
        """
        size_bytes = self.bundle.size_bytes
        with _open_part(self.part) as file:
            if os.fstat(file).st_size > size_bytes:
                os.ftruncate(file, 0)
            digest = hashlib.sha256()
            have = _digest_part(file, digest)
            if have < size_bytes:
                with self.opened(self.bundle, have) as (offset, pieces):
                    if offset != have:
                        os.ftruncate(file, 0)
                        os.lseek(file, 0, os.SEEK_SET)
                        digest, have = hashlib.sha256(), 0
                    for piece in pieces:
                        have += len(piece)
                        if have > size_bytes:
                            os.ftruncate(file, 0)
                            raise NotWarm(
                                f"bundle {self.bundle.sha256[:16]}…: more than the published "
                                f"{size_bytes:,} bytes are sent; look what answers there",
                                code="bad_answer",
                            )
                        _write_all(file, piece)
                        digest.update(piece)
                        self.tell(f"fetching {have / 1e6:.0f} of {size_bytes / 1e6:.0f} MB")
            if have < size_bytes:
                raise Broken(
                    f"bundle {self.bundle.sha256[:16]}…: the connection broke off after {have:,} "
                    f"of {size_bytes:,} bytes; the next hook goes on there"
                )
        return digest.hexdigest() == self.bundle.sha256

    def _is_there(self) -> bool:
        """Whether it lies there whole; what lies there otherwise is removed."""
        try:
            right = self.target.lstat().st_size == self.bundle.size_bytes
            right = right and file_digest(self.target) == self.bundle.sha256
        except FileNotFoundError:
            return False
        if not right:
            self.target.unlink()
            return False
        os.utime(self.target)
        return True

    def _size_of_part(self) -> int:
        with suppress(OSError):
            return self.part.lstat().st_size
        return 0

    def _require_room(self) -> None:
        needed = self.bundle.size_bytes - self._size_of_part()
        found = os.statvfs(self.keep.place)
        free = found.f_bavail * found.f_frsize
        if found.f_blocks and free < needed:
            raise NoSpace(
                f"{self.keep.place}: {needed:,} bytes are needed and {free:,} are free; free some "
                "space there"
            )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock of bundles like this one; the kernel lets go when a hook dies."""
        # One for each first digit, so that they stay few and none is ever removed.
        path = self.part.with_name(f"{self.bundle.sha256[0]}.lock")
        with write_errors(path):
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(lock, 0o600)  # whatever the umask
            while not _locked(lock):
                self.tell("waiting for another hook that fetches it")
                self.deadline.pause(_LOOK_S)
            yield
        finally:
            os.close(lock)


def remove_old(keep: Keep, *, now_s: float) -> None:
    """Remove bundles and parts of some that no hook has used for a day."""
    bundles = keep.place.glob("bundles/sha256/*/*.tar.zst")
    for path in (*bundles, *(keep.place / _DOWNLOADS).glob("*.part")):
        with suppress(OSError):
            if now_s - path.lstat().st_mtime > KEEP_S:
                path.unlink()


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # A file system without locks leaves two hooks to fetch twice into one part, whose digest is
        # then wrong for both: the deployment starts without a bundle.
        return error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
    return True


@contextmanager
def _open_part(path: Path) -> Iterator[int]:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file = os.open(path, flags, 0o600)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
            raise OSError(errno.EPERM, "is no file of this user's own")
        os.fchmod(file, 0o600)
        yield file
    finally:
        os.close(file)


def _digest_part(file: int, digest: hashlib._Hash) -> int:
    have = 0
    while piece := os.read(file, 1 << 20):
        digest.update(piece)
        have += len(piece)
    return have


def _write_all(file: int, piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[os.write(file, left) :]


def _unlike(bundle: BundleFile) -> NotWarm:
    return NotWarm(
        f"bundle {bundle.sha256[:16]}…: what is sent has another SHA-256 than was published; "
        "look what answers there, or run `prewarm scan` on its builder",
        code="corrupt",
    )
