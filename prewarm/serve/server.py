"""The HTTP server in a thread of its own: start, serve, stop.

Owns the thread and its event loop. Installs no signal handler, so the daemon's own hold; writes no
log but through ``House.tell``.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Callable, Sequence
from socket import socket

import uvicorn

from prewarm.serve.app import make_app
from prewarm.serve.connection import CONNECTIONS, Connection
from prewarm.serve.house import House
from prewarm.serve.listening import Listener

#: Between two requests on one connection.
_KEEP_ALIVE_S = 5

#: Longest line and headers of a request.
_HEADERS_BYTES = 16 << 10

_TICK_S = 1.0

#: What the event loop needs to end once every connection is cut.
_LAST_S = 2.0


class Server:
    """Serves a house on some sockets, which it closes in the end."""

    def __init__(self, house: House, listeners: Sequence[Listener]) -> None:
        self._listeners = tuple(listeners)
        self._app = make_app(house)
        self._loop: asyncio.AbstractEventLoop | None = None
        config = uvicorn.Config(
            self._app,
            http=Connection,
            ws="none",
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",
            access_log=False,
            # Whose address it is, is the connection's to say, not a header's.
            proxy_headers=False,
            server_header=False,
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=_KEEP_ALIVE_S,
            h11_max_incomplete_event_size=_HEADERS_BYTES,
        )
        self._uvicorn = _Announced(config)
        self._thread = threading.Thread(target=self._run, name="prewarm-http", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether it serves; a thread that ended by itself is the daemon's to replace."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Serve from now on; returns when connections are taken."""
        self._thread.start()
        self._uvicorn.announced.wait()
        if not self._uvicorn.started:
            raise RuntimeError("the HTTP server ended before it took a connection")

    def changed(self) -> None:
        """Tell that an entry came to rest, so that who waits for it is answered at once."""
        self._call(self._app.state.waiting.changed)

    def stop(self, timeout_s: float) -> None:
        """Send away who waits, let answers under way end for so long, cut the rest, and close."""
        self._call(self._app.state.waiting.close)
        self._uvicorn.config.timeout_graceful_shutdown = math.ceil(timeout_s)
        self._uvicorn.should_exit = True
        self._call(self._uvicorn.ending.set)
        if self._thread.ident is not None:
            self._thread.join(math.ceil(timeout_s) + _LAST_S)
        for listener in self._listeners:
            listener.close()

    def _run(self) -> None:
        sockets = [listener.socket for listener in self._listeners]
        try:
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                runner.run(self._uvicorn.serve(sockets=sockets))
        finally:
            self._uvicorn.announced.set()

    def _call(self, function: Callable[[], None]) -> None:
        if self._loop is not None and self._thread.is_alive():
            try:
                self._loop.call_soon_threadsafe(function)
            except RuntimeError:
                # It ended by itself in this moment.
                return


class _Announced(uvicorn.Server):
    """Tells other threads when it takes connections, and cuts in the end what is left of them."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.announced = threading.Event()
        self.ending = asyncio.Event()

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        self.announced.set()

    async def main_loop(self) -> None:
        """Wake once a second, for the date of the answers, and at once to end."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self.ending.wait()

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        # Each is told that it is lost in the next round of the loop.
        await asyncio.sleep(0)
