"""The turn on a device: what a build times runs while nothing else of the builder works there.

The builder's end is ``build/turn_door.py``. Without its variable, as in every deployment, nothing
happens; nor does it where the builder does not answer. Standard library only.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from socket import socket

VARIABLE = "PREWARM_TURN"


class Alone:
    """A context in which this process has the device for itself, where a builder gives turns."""

    def __init__(self) -> None:
        self._turn: socket | None = None

    def __enter__(self) -> None:
        name = os.environ.get(VARIABLE)
        if name:
            self._turn = _take(name)

    def __exit__(self, *error: object) -> None:
        if self._turn is not None:
            self._turn.close()
            self._turn = None


def _take(name: str) -> socket | None:
    import socket

    turn = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        turn.connect("\0" + name)
        turn.recv(1)
    except OSError:
        turn.close()
        return None
    return turn
