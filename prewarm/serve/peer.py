"""Who asks: the user of a process on the Unix socket, as the kernel tells, or an address."""

from __future__ import annotations

import ipaddress
import socket
import struct
from dataclasses import dataclass

#: struct ucred: process, user and group id.
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection; ``uid`` on the Unix socket, ``address`` on TCP."""

    uid: int | None = None
    address: str | None = None

    @property
    def name(self) -> str:
        """One name for all connections of this peer."""
        return f"user {self.uid}" if self.uid is not None else f"address {self.address}"

    @property
    def is_loopback(self) -> bool:
        """Whether it asks over TCP from this machine."""
        try:
            address = ipaddress.ip_address(self.address or "")
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        return address.is_loopback


def peer_of(connection: socket.socket) -> Peer:
    """Ask the kernel who is at the other end; nobody, if it has gone already."""
    try:
        if connection.family == socket.AF_UNIX:
            told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            return Peer(uid=_CREDENTIALS.unpack(told)[1])
        return Peer(address=str(connection.getpeername()[0]))
    except OSError:
        return Peer()
