"""The figures of the HTTP side: answers a second, and the memory of a hundred downloads.

The server runs in a process of its own, from this file; server and load share the machine's cores.
``serving.py`` makes the house and holds the figures against their limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from prewarm.serve.house import House
from prewarm.serve.listening import listen_on_path, listen_on_port
from prewarm.serve.metrics import Metrics
from prewarm.serve.server import Server
from prewarm.store.database import DATABASE_NAME

CONNECTIONS = 50
DOWNLOADS = 100
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of some work, and the server's resident memory in MB before it and at its peak."""

    seconds: float
    before_mb: float
    peak_mb: float


def answers(root: Path, *, count: int, encoding: str | None = None) -> Measured:
    """Ask for the whole manifest so many times over 50 connections on loopback."""
    accept = f"Accept-Encoding: {encoding}\r\n" if encoding else ""
    request = f"GET /v1/manifest HTTP/1.1\r\nHost: localhost\r\n{accept}\r\n".encode()
    with serving(root) as (pid, port):
        asyncio.run(_load(port, request, CONNECTIONS))  # the first of each connection is no figure
        return measured(pid, lambda: asyncio.run(_load(port, request, count)))


def downloads(root: Path, sha256: str) -> Measured:
    """Download one bundle a hundred times at once over the Unix socket, and check each."""
    with serving(root) as (pid, _):
        return measured(pid, lambda: asyncio.run(_download(root / "sock", sha256)))


def measured(pid: int, work: Callable[[], None]) -> Measured:
    """Do some work, and say what it took and what became of the server's memory."""
    before_mb = _resident_mb(pid, "VmRSS")
    started_s = time.perf_counter()
    work()
    seconds = time.perf_counter() - started_s
    return Measured(seconds, before_mb, _resident_mb(pid, "VmHWM"))


async def _load(port: int, request: bytes, count: int) -> None:
    left = iter(range(count))

    async def ask() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_READ_BYTES)
        for _ in left:
            writer.write(request)
            size_bytes = await _head(reader)
            while size_bytes:
                size_bytes -= len(await reader.read(min(size_bytes, _READ_BYTES)))
        writer.close()

    await asyncio.gather(*(ask() for _ in range(CONNECTIONS)))


async def _download(path: Path, sha256: str) -> None:
    request = f"GET /v1/bundles/{sha256} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()

    async def fetch() -> None:
        reader, writer = await asyncio.open_unix_connection(path, limit=_READ_BYTES)
        writer.write(request)
        left, digest = await _head(reader), hashlib.sha256()
        while left:
            part = await reader.read(min(left, _READ_BYTES))
            left -= len(part)
            digest.update(part)
        writer.close()
        if digest.hexdigest() != sha256:
            raise SystemExit("a bundle came with another content")

    await asyncio.gather(*(fetch() for _ in range(DOWNLOADS)))


async def _head(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"an answer began with {head[:60]!r}")
    return int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])


@contextlib.contextmanager
def serving(root: Path) -> Iterator[tuple[int, int]]:
    """Serve the house below ``root``; the server's process id and TCP port."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(root)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


def _resident_mb(pid: int, field: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [line] = [one for one in lines if one.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024 / 1e6


def main(root: Path) -> None:
    """Serve until a signal comes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    database = root / "state" / DATABASE_NAME
    house = House(
        cache_dir=root / "cache",
        database=database,
        uid=os.geteuid(),
        token=None,
        wake=lambda: None,
        ready=lambda: True,
        metrics=Metrics(database),
        tell=lambda line: print(line, file=sys.stderr),
    )
    listeners = [
        listen_on_path(root / "sock", mode=0o600),
        listen_on_port("127.0.0.1", 0, token=None),
    ]
    server = Server(house, listeners)
    server.start()
    print(listeners[1].socket.getsockname()[1], flush=True)
    signal.sigwait({signal.SIGTERM})
    server.stop(5)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
