"""Whether the files of a local directory are trusted as they are.

Owns the rule of design.md §6: owned by root or by the reader, and writable by nobody else. Bundles
need no such check, since a trusted manifest names their digests.
"""

from __future__ import annotations

import shlex
import stat
from dataclasses import dataclass
from pathlib import Path

from prewarm.errors import ManifestUnavailable


@dataclass(frozen=True, slots=True)
class Distrust:
    """Why a path is not trusted, and the command that makes it so."""

    path: Path
    why: str
    remedy: str

    def sentence(self) -> str:
        """Say both in one line."""
        return (
            f"{self.path} {self.why}, so its manifests are not trusted; run: {self.remedy} "
            "(or name their builder's key with --trust, as `prewarm doctor` prints it there)"
        )


def distrust(path: Path, *, uid: int) -> Distrust | None:
    """Return why ``path`` is not trusted by the reader ``uid``, or None where it is.

    Raises:
        OSError: the path cannot be looked at.
    """
    found = path.stat()
    name = shlex.quote(str(path))
    if found.st_uid not in (0, uid):
        return Distrust(path, f"belongs to user {found.st_uid}", f"chown root {name}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        who = "everybody" if found.st_mode & stat.S_IWOTH else "its group"
        return Distrust(path, f"can be written by {who}", f"chmod go-w {name}")
    return None


def require_trusted(directories: tuple[Path, ...], *, uid: int) -> None:
    """Pass if every directory is trusted.

    Raises:
        ManifestUnavailable: one is not there, cannot be read, or is not trusted.
    """
    found = distrust_of(directories, uid=uid)
    if found is not None:
        raise ManifestUnavailable(found.sentence(), code="not_trusted")


def distrust_of(directories: tuple[Path, ...], *, uid: int) -> Distrust | None:
    """Return why the first of several directories is not trusted that is not, None where all are.

    Raises:
        ManifestUnavailable: one is not there, or cannot be read.
    """
    for directory in directories:
        try:
            found = distrust(directory, uid=uid)
        except FileNotFoundError:
            raise ManifestUnavailable(
                f"{directory} is not there; name the builder's cache directory with --manifest "
                "or PREWARM_CACHE_DIR, or run `prewarm scan` first"
            ) from None
        except OSError as error:
            raise ManifestUnavailable(
                f"{directory}: cannot be read ({error.strerror}); give this user access to it"
            ) from error
        if found is not None:
            return found
    return None
