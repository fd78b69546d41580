"""One builder at a time on a GPU, among all on this host: a kernel lock named by the GPU's UUID.

The lock files lie in ``/dev/shm``: each Linux has it, every user may write there, and unlike
``/tmp`` and ``/run`` a sandboxed service has the same one as everybody else. So builders of a host
share it unless they are in containers that do not (``--ipc=host`` shares it). Rules:

- A lock dies with its holder; the files stay, empty, and say nothing.
- Files are opened without following links, and are readable by all, which is all that a lock needs.
  Whoever means harm can hold one for ever, as they could use the GPU itself.
- Who waits holds the place in line (a second file), so that of two builders neither starves.
"""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

DIRECTORY = Path("/dev/shm")


class GpuLock:
    """The lock of one GPU; not for several threads at once."""

    def __init__(self, uuid: str, directory: Path = DIRECTORY) -> None:
        self._path = directory / f"prewarm-{uuid}.lock"
        self._line_path = directory / f"prewarm-{uuid}.next"
        self._held: int | None = None
        self._in_line: int | None = None

    def take(self) -> bool:
        """Take the lock if it is free; else stand in line for it until ``release``.

        Raises:
            OSError: the files cannot be opened.
        """
        if self._held is not None:
            return True
        if self._in_line is None:
            self._in_line = _locked(self._line_path)
        if self._in_line is None:
            return False
        self._held = _locked(self._path)
        if self._held is None:
            return False
        self._leave_line()
        return True

    def release(self) -> None:
        """Give the lock, and the place in line, to others."""
        self._leave_line()
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _leave_line(self) -> None:
        if self._in_line is not None:
            os.close(self._in_line)
            self._in_line = None


def _locked(path: Path) -> int | None:
    """Return an open file with the lock on it, or None where somebody else has it."""
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _open(path: Path) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        # In a sticky directory the kernel may refuse O_CREAT for a file that another user made.
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o444)
            os.fchmod(descriptor, 0o444)
        except FileExistsError:
            descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is no plain file")
    return descriptor
