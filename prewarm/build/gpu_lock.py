"""One builder at a time on a GPU, among all on this host: a name that one socket can have.

The lock is an abstract Unix socket with the GPU's UUID in its name. It belongs to the kernel, not
to a directory: it dies with its holder, and a service in a sandbox (``ProtectSystem=``,
``PrivateTmp=``, ``RemoveIPC=``, which all part or remove lock files) shares it with everybody on
the host. Containers share it if they share the host's network. Rules:

- Whoever means harm can take a name for ever, as they could use the GPU itself.
- Who waits holds the place in line (a second name), so that of two builders neither starves.
"""

from __future__ import annotations

import errno
import socket

PREFIX = "prewarm"


class GpuLock:
    """The lock of one GPU; not for several threads at once."""

    def __init__(self, uuid: str, prefix: str = PREFIX) -> None:
        self._name = f"{prefix}-{uuid}"
        self._held: socket.socket | None = None
        self._in_line: socket.socket | None = None

    def take(self) -> bool:
        """Take the lock if it is free; else stand in line for it until ``release``.

        Raises:
            OSError: the kernel gives no such sockets.
        """
        if self._held is not None:
            return True
        if self._in_line is None:
            self._in_line = _named(self._name + "-next")
        if self._in_line is None:
            return False
        self._held = _named(self._name)
        if self._held is None:
            return False
        self._leave_line()
        return True

    def release(self) -> None:
        """Give the lock, and the place in line, to others."""
        self._leave_line()
        if self._held is not None:
            self._held.close()
            self._held = None

    def _leave_line(self) -> None:
        if self._in_line is not None:
            self._in_line.close()
            self._in_line = None


def _named(name: str) -> socket.socket | None:
    """Return a socket of a name, or None where somebody else has it."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        made.bind("\0" + name)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return made
