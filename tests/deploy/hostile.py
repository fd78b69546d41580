"""A server that answers just what a test says, byte by byte, on a real socket."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Call:
    """One request, and the connection to answer it on."""

    method: str
    path: str
    headers: dict[str, str]
    connection: socket.socket
    over: threading.Event

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def answer(
        self, body: bytes = b"", *, status: str = "200 OK", length: int | None = -1, **headers: str
    ) -> None:
        """Send a whole answer; without a length where that is None."""
        lines = [f"HTTP/1.1 {status}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if length is not None:
            lines.append(f"content-length: {len(body) if length == -1 else length}")
        self.send("\r\n".join([*lines, "", ""]).encode() + body)

    def stall(self) -> None:
        """Say nothing until the test is over."""
        self.over.wait(60)

    def trickle(self, data: bytes) -> None:
        """Send a byte now and then, without end."""
        position = 0
        while not self.over.wait(0.02):
            self.send(data[position % len(data)].to_bytes())
            position += 1

    def flood(self, data: bytes) -> None:
        """Send the same again and again, without end."""
        while not self.over.is_set():
            self.send(data)


Handler = Callable[[Call], None]


@dataclass
class Hostile:
    """The server; ``calls`` has every request that came."""

    handler: Handler
    context: ssl.SSLContext | None = None
    calls: list[Call] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        scheme = "http" if self.context is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.over.set()
        # Wakes the thread that accepts.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in self._threads)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.settimeout(20)
            if self.context is not None:
                connection = self.context.wrap_socket(connection, server_side=True)
            with connection:
                call = self._read(connection)
                self.calls.append(call)
                self.handler(call)

    def _read(self, connection: socket.socket) -> Call:
        head = b""
        while b"\r\n\r\n" not in head:
            got = connection.recv(65536)
            if not got:
                raise OSError("nothing was asked")
            head += got
        lines = head.partition(b"\r\n\r\n")[0].decode().split("\r\n")
        method, path, _ = lines[0].split(" ")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])
        }
        return Call(method, path, headers, connection, self.over)


@contextmanager
def hostile(handler: Handler, context: ssl.SSLContext | None = None) -> Iterator[Hostile]:
    server = Hostile(handler, context)
    try:
        yield server
    finally:
        server.close()
