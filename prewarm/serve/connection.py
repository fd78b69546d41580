"""One HTTP connection with deadlines, and with its peer asked of the kernel.

Owns what uvicorn's own connection leaves open: a reader that says nothing, half a request, or does
not take its answer would stay for ever.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

from prewarm.serve.peer import peer_of

#: From the connection, or the first byte of a request, to the end of its headers.
REQUEST_S = 10.0

#: A full buffer that nobody reads from.
STALL_S = 60.0

#: What comes beyond uvicorn's own limit gets its answer, 503; beyond this, none.
CONNECTIONS = 400
MOST_CONNECTIONS = 600


class Connection(H11Protocol):
    """A connection that ends by itself when the other end does not go on."""

    _late: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
            return
        self.app_state = {**self.app_state, "peer": peer_of(transport.get_extra_info("socket"))}
        self._late = self.loop.call_later(REQUEST_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        if not self.flow.write_paused:
            self._stalled = _cancelled(self._stalled)
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._late = _cancelled(self._late)
        elif self._late is None:
            self._late = self.loop.call_later(REQUEST_S, self.transport.abort)

    def on_response_complete(self) -> None:
        """Give the reader time to take the rest of the answer, which lies in a buffer."""
        super().on_response_complete()
        self._watch_buffer()

    def pause_writing(self) -> None:
        """Wait for the reader."""
        super().pause_writing()
        self._watch_buffer()

    def resume_writing(self) -> None:
        """Go on: the reader took something."""
        self._stalled = _cancelled(self._stalled)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._late = _cancelled(self._late)
        self._stalled = _cancelled(self._stalled)
        super().connection_lost(exc)

    def _watch_buffer(self) -> None:
        if self._stalled is None and self.transport.get_write_buffer_size():
            self._stalled = self.loop.call_later(STALL_S, self._end_if_stalled)

    def _end_if_stalled(self) -> None:
        self._stalled = None
        if self.transport.get_write_buffer_size():
            self.transport.abort()


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None
