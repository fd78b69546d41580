"""What a reader keeps between hooks: which manifests it has seen, and bundles that it fetched.

Owns the place, ``hook/`` in the user's cache directory, and what may be believed there.

- Without a home, or where nothing can be written there, it is ``.prewarm/`` in the private
  directory.
- A place that another user can write is none: neither what was seen nor what was fetched is taken
  from it.
- What was seen is kept as well as it goes: where nothing can be written, nothing is remembered.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from prewarm.config import own_cache_dir
from prewarm.deploy.seen import Mark, marks_from, marks_to_json
from prewarm.errors import ManifestUnavailable, NoSpace, NotWritable, PrewarmError
from prewarm.store.manifest import LARGEST_MANIFEST_BYTES
from prewarm.store.manifest_files import read_limited
from prewarm.store.whole_file import make_directory, write_whole

_PLACE, _HIDDEN_PLACE = "hook", ".prewarm"
_FORMAT = 1
_MEMORY_BYTES = 1 << 20
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Memory:
    """What is known of one source: the newest manifest of each builder, and its last answer.

    ``as_is`` says that the answer was trusted without a key.
    """

    marks: Mapping[str, Mark] = field(default_factory=dict)
    etag: str = ""
    sha256: str = ""
    as_is: bool = False


@dataclass(frozen=True, slots=True)
class Keep:
    """The place; it is ``lasting`` where other hooks of this user use it too."""

    place: Path
    lasting: bool

    def memory(self, source: str) -> Memory:
        """Return what is known of a source; nothing where the place cannot be believed."""
        if not self._is_believed():
            return Memory()
        try:
            table = json.loads(read_limited(self._memory_path(source), _MEMORY_BYTES))
            if table["format"] != _FORMAT or table["source"] != source:
                return Memory()
            texts = (str(table["etag"]), str(table["sha256"]))
            return Memory(marks_from(table["builders"]), *texts, as_is=table["as_is"] is True)
        except (ManifestUnavailable, ValueError, LookupError, TypeError, RecursionError):
            return Memory()

    def answer(self, source: str, memory: Memory) -> bytes | None:
        """Return the last answer of a source if it is still there as it was."""
        if not memory.sha256:
            return None
        try:
            body = read_limited(self._answer_path(source), LARGEST_MANIFEST_BYTES)
        except ManifestUnavailable:
            return None
        return body if hashlib.sha256(body).hexdigest() == memory.sha256 else None

    def remember(self, source: str, memory: Memory, answer: bytes | bytearray | None) -> None:
        """Keep what is known of a source, as far as something can be written."""
        table = {
            "format": _FORMAT,
            "source": source,
            "builders": marks_to_json(memory.marks),
            "etag": memory.etag,
            "sha256": memory.sha256,
            "as_is": memory.as_is,
        }
        with suppress(NotWritable, NoSpace, OSError):
            # A private directory is made by who fills it.
            if not self.lasting and not self.place.parent.is_dir():
                return
            make_directory(self._memory_path(source).parent)
            if answer is not None:
                write_whole(self._answer_path(source), bytes(answer))
            write_whole(self._memory_path(source), json.dumps(table).encode())

    def require_own(self) -> None:
        """Make the place, and pass if nobody else can write there.

        Raises:
            NotWritable: somebody else can, or this user cannot.
        """
        make_directory(self.place)
        if not self._is_own():
            raise NotWritable(
                f"{self.place}: can be written by others, so that nothing is fetched to it; "
                "remove it, or choose another directory with --into"
            )

    def _is_own(self) -> bool:
        found = self.place.lstat()
        return (
            stat.S_ISDIR(found.st_mode)
            and found.st_uid == os.geteuid()
            and not (found.st_mode & _OTHERS_WRITE)
        )

    def _is_believed(self) -> bool:
        with suppress(OSError):
            found = self.place.lstat()
            trusted = found.st_uid in (0, os.geteuid()) and not found.st_mode & _OTHERS_WRITE
            return stat.S_ISDIR(found.st_mode) and trusted
        return False

    def _memory_path(self, source: str) -> Path:
        return self.place / "seen" / f"{_name(source)}.json"

    def _answer_path(self, source: str) -> Path:
        return self.place / "seen" / f"{_name(source)}.manifests"


def keep_for(environ: Mapping[str, str], into: Path) -> Keep:
    """Return the place of this user, made if it was not there, or the one in a directory."""
    own = own_cache_dir(environ)
    if own is not None:
        keep = Keep(own / _PLACE, lasting=True)
        with suppress(PrewarmError, OSError):
            keep.require_own()
            if os.access(keep.place, os.W_OK | os.X_OK, effective_ids=True):
                return keep
    return Keep(into / _HIDDEN_PLACE, lasting=False)


def _name(source: str) -> str:
    return hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest()[:16]
