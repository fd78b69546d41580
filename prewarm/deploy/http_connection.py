"""A connection to a builder on which nothing takes longer than it may: sockets with deadlines.

Owns resolving, connecting, TLS, and that each single byte is waited for within the deadline, so
that a server that trickles is as late as one that is silent. A server's certificate is checked
against the system's authorities; proxies are not used.
"""

from __future__ import annotations

import http.client
import io
import queue
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prewarm.deploy.address import Endpoint
from prewarm.deploy.deadline import Deadline
from prewarm.errors import ManifestUnavailable
from prewarm.plain_text import spelt_plain

#: A machine that is there answers at once; an address that is not is given up for the next.
_CONNECT_S = 5.0
_RESOLVE_S = 10.0


class Broken(ManifestUnavailable):
    """A connection that did not come about or broke off; another one may do better."""

    code = "unreachable"


class Connection(http.client.HTTPConnection):
    """One request and its answer over a socket that is open already."""

    auto_open = 0

    def __init__(self, endpoint: Endpoint, timed: _TimedSocket) -> None:
        super().__init__(endpoint.host, endpoint.port or None)
        if endpoint.scheme == "https":
            self.default_port = 443
        self.sock: Any = timed


@contextmanager
def connected(endpoint: Endpoint, deadline: Deadline, *, idle_s: float) -> Iterator[Connection]:
    """Open a connection for one request, on which a silence of ``idle_s`` is the end.

    Raises:
        Broken: nobody answers there, or no certificate holds.
        ManifestUnavailable: the time is over.
    """
    with wire_errors(endpoint, deadline):
        sock = _connect(endpoint, deadline)
    try:
        with wire_errors(endpoint, deadline):
            sock = _encrypted(endpoint, sock, deadline)
        yield Connection(endpoint, _TimedSocket(sock, deadline, idle_s))
    finally:
        sock.close()


@contextmanager
def wire_errors(endpoint: Endpoint, deadline: Deadline) -> Iterator[None]:
    """Tell what went wrong on the wire as one of our errors.

    Raises:
        Broken: anything on the wire.
        ManifestUnavailable: the time is over.
    """
    try:
        yield
    except (OSError, http.client.HTTPException, ValueError) as error:
        if deadline.is_over():
            deadline.left_s()
        raise Broken(
            f"{endpoint}: {_cause(error)}; look whether the builder runs, or name another with "
            "--manifest"
        ) from error


def peer_uid(connection: Connection) -> int | None:
    """Return who listens at the other end of a Unix socket, by the kernel's word."""
    sock = connection.sock.socket
    if sock.family != socket.AF_UNIX:
        return None
    # struct ucred: pid, uid, gid. The kernel notes them when the other side begins to listen.
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", raw)[1])


class _TimedReader(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: Deadline, idle_s: float) -> None:
        self._socket = sock
        self._deadline = deadline
        self._idle_s = idle_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._socket.settimeout(self._deadline.left_s(self._idle_s))
        return self._socket.recv_into(buffer)


class _TimedSocket:
    """As much of a socket as ``http.client`` uses."""

    def __init__(self, sock: socket.socket, deadline: Deadline, idle_s: float) -> None:
        self.socket = sock
        self._deadline = deadline
        self._idle_s = idle_s

    def sendall(self, data: bytes) -> None:
        # The limit holds for all of it.
        self.socket.settimeout(self._deadline.left_s(self._idle_s))
        self.socket.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self.socket, self._deadline, self._idle_s))

    def close(self) -> None:
        """Leave it open: its answer may still be read."""


def _connect(endpoint: Endpoint, deadline: Deadline) -> socket.socket:
    if endpoint.scheme == "unix":
        return _opened(socket.AF_UNIX, endpoint.path, deadline)
    addresses = _resolved(endpoint, deadline)
    failure: OSError | None = None
    for family, address in addresses:
        try:
            return _opened(family, address, deadline)
        except OSError as error:
            failure = error
    raise failure or OSError(f"{endpoint.host} has no address")


def _opened(family: int, address: Any, deadline: Deadline) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(deadline.left_s(_CONNECT_S))
        sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


def _resolved(endpoint: Endpoint, deadline: Deadline) -> list[tuple[int, Any]]:
    """Return the addresses of a host; asking for them cannot be interrupted, so a thread does."""
    answers: queue.SimpleQueue[list[Any] | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
            answers.put(list(found))
        except (OSError, UnicodeError) as error:
            answers.put(error)

    threading.Thread(target=ask, name="resolve", daemon=True).start()
    try:
        answer = answers.get(timeout=deadline.left_s(_RESOLVE_S))
    except queue.Empty:
        raise TimeoutError(f"no answer to where {endpoint.host} is") from None
    if isinstance(answer, Exception):
        raise OSError(f"{endpoint.host} is not known ({answer})") from answer
    return [(family, address) for family, _, _, _, address in answer]


def _encrypted(endpoint: Endpoint, sock: socket.socket, deadline: Deadline) -> socket.socket:
    if endpoint.scheme != "https":
        return sock
    sock.settimeout(deadline.left_s(_CONNECT_S))
    return ssl.create_default_context().wrap_socket(sock, server_hostname=endpoint.host)


def _cause(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer in time ({error})" if str(error) != "timed out" else "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate does not hold ({error.verify_message})"
    if isinstance(error, http.client.RemoteDisconnected):
        return "it hung up without an answer"
    if isinstance(error, OSError):
        return f"cannot be reached ({error.strerror or error})"
    told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"answers no proper HTTP ({spelt_plain(told[:120])})"
