"""The door through which a child that compiles takes the turn for what it times.

An abstract Unix socket, named to the child by a variable. A connection is one stretch that is
timed: it is answered by one byte once the turn is the child's (``turns.py``), and closed when the
stretch is over, also by the death of whoever opened it. The other end is ``torchside/turn.py``.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
import threading
from collections.abc import Iterator

from prewarm.build.interrupted import Interrupted
from prewarm.build.turns import Member, Turns

VARIABLE = "PREWARM_TURN"

#: Processes of one child that time at once are few.
_WAITING = 64


@contextlib.contextmanager
def open_door(turns: Turns, member: Member, stop: threading.Event) -> Iterator[dict[str, str]]:
    """Serve a member while entered; the answer is the variable that its child needs."""
    name = f"prewarm-turn-{secrets.token_hex(16)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind(f"\0{name}")
        door.listen(_WAITING)
        closed = threading.Event()
        stops = _Either(closed, stop)
        serving = threading.Thread(
            target=_serve, args=(door, turns, member, stops), name="turn door", daemon=True
        )
        serving.start()
        try:
            yield {VARIABLE: name}
        finally:
            closed.set()
            with contextlib.suppress(OSError):
                door.shutdown(socket.SHUT_RDWR)
            serving.join()


class _Either(threading.Event):
    """An event that is set when one of two is."""

    def __init__(self, one: threading.Event, other: threading.Event) -> None:
        super().__init__()
        self._two = (one, other)

    def is_set(self) -> bool:
        return any(event.is_set() for event in self._two)


def _serve(door: socket.socket, turns: Turns, member: Member, stop: threading.Event) -> None:
    while True:
        try:
            caller, _ = door.accept()
        except OSError:
            return
        if _user_of(caller) != os.geteuid():
            caller.close()
            continue
        threading.Thread(
            target=_grant, args=(caller, turns, member, stop), name="turn", daemon=True
        ).start()


def _grant(caller: socket.socket, turns: Turns, member: Member, stop: threading.Event) -> None:
    with caller:
        try:
            turns.take(member, stop)
        except Interrupted:
            return
        try:
            with contextlib.suppress(OSError):
                caller.sendall(b"1")
                caller.recv(1)  # nothing comes: the end of the connection is the word
        finally:
            turns.give(member)


def _user_of(caller: socket.socket) -> int:
    told = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", told)
    return int(user)
