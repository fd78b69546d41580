"""What a service tells systemd: ready, what it does now, that it lives, that it stops.

Owns the protocol of ``sd_notify``: one datagram to the socket of ``NOTIFY_SOCKET``. Without that
variable nothing is sent, and a message that cannot be sent takes no service down.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

#: systemd cuts a status line; ours is shown beside others in a list.
LONGEST_STATUS = 200


class Notifier:
    """Sends messages to the service manager, if there is one."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # An abstract socket is written with an @ for its first byte, 0.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s = _watchdog_s(environ)

    def ready(self, status: str) -> None:
        """Tell that the start is over."""
        self._send("READY=1", _status(status))

    def status(self, status: str) -> None:
        """Tell what happens now, for ``systemctl status``."""
        self._send(_status(status))

    def alive(self) -> None:
        """Tell the watchdog that all threads work."""
        self._send("WATCHDOG=1")

    def reloading(self) -> None:
        """Tell that the configuration is read again; ``ready`` ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Tell that the end has begun."""
        self._send("STOPPING=1", _status("stopping"))

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.connect(self._address)
            channel.sendall("\n".join(lines).encode("utf-8", "replace"))


def _status(text: str) -> str:
    return "STATUS=" + " ".join(text.split())[:LONGEST_STATUS]


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    """Return how often the watchdog wants to hear of this process, None if never."""
    usec, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not usec.isdecimal() or int(usec) == 0 or (pid.isdecimal() and int(pid) != os.getpid()):
        return None
    return int(usec) / 1e6
