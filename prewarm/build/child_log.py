"""The log of a child: what it writes to its standard error, kept within a bound while it writes.

Owns the pipe, the thread that empties it, and what stays of the text. Rules:

- The pipe is emptied whatever becomes of the text: neither a bound nor a full disk makes the child
  wait.
- A log holds the first ``HEAD_BYTES`` and at least the last ``TAIL_BYTES``, in whole lines, and
  between them a line that says how much is left out. Several children of a build write one log.
- Who stays behind with the other end of the pipe is not waited for.
"""

from __future__ import annotations

import os
import re
import select
import threading
from pathlib import Path
from types import TracebackType

#: What a build says first: versions, the checkpoint, its first warnings.
HEAD_BYTES = 1 << 20

#: What it said last; up to twice as much is in the file.
TAIL_BYTES = 1 << 20

#: A log is at most so large.
LIMIT_BYTES = HEAD_BYTES + 2 * TAIL_BYTES

#: Lines of the log that are kept with a reason.
TAIL_LINES = 15

_READ_BYTES = 64 << 10
_LAST_BYTES = 16 << 10
#: What one who stays behind may still have in the pipe.
_REST_BYTES = 1 << 20

_NOTE_BYTES = 80
_NOTE = re.compile(rb"== ([\d,]+) bytes are left out here ==\n")


class ChildLog:
    """The log of one child, for as long as it is entered; ``writer`` is its standard error.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._file = BoundedFile(path)
        self._reader, self.writer = os.pipe()
        self._over = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._empty, name="log", daemon=True)
        self._last = b""

    def __enter__(self) -> ChildLog:
        return self

    def begin(self) -> None:
        """Read from now on; the child has the other end of the pipe by itself."""
        os.close(self.writer)
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread.ident is None:
            os.close(self.writer)
        else:
            os.eventfd_write(self._over, 1)
            self._thread.join()
        os.close(self._reader)
        os.close(self._over)
        self._file.close()

    def tail(self) -> tuple[str, ...]:
        """Return the last lines of this child."""
        lines = self._last.decode("utf-8", "replace").replace("\r", "\n").splitlines()
        return tuple(line for line in lines if line.strip())[-TAIL_LINES:]

    def _empty(self) -> None:
        os.set_blocking(self._reader, False)
        ready = select.poll()
        ready.register(self._reader, select.POLLIN)
        ready.register(self._over, select.POLLIN)
        while all(descriptor != self._over for descriptor, _ in ready.poll()):
            if self._take() == 0:
                return
        left_bytes = _REST_BYTES
        while left_bytes > 0 and (taken_bytes := self._take()):
            left_bytes -= taken_bytes

    def _take(self) -> int | None:
        """Take what is in the pipe now and tell how much; 0 once nobody has the other end."""
        try:
            data = os.read(self._reader, _READ_BYTES)
        except BlockingIOError:
            return None
        self._last = (self._last + data)[-_LAST_BYTES:]
        self._file.write(data)
        return len(data)


class BoundedFile:
    """A file that is written at its end and loses its middle where it would become too large.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(
        self, path: Path, *, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES
    ) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._limit_bytes = head_bytes + 2 * tail_bytes
        self._size_bytes = os.fstat(self._descriptor).st_size

    def write(self, data: bytes) -> None:
        """Write at the end; what does not get on the disk is left out, and the rest goes on."""
        try:
            room_bytes = max(0, self._head_bytes - self._size_bytes)
            self._write_at(self._size_bytes, data[:room_bytes])
            data = data[room_bytes:]
            if self._size_bytes + len(data) > self._limit_bytes:
                self._leave_out(data)
            else:
                self._write_at(self._size_bytes, data)
        except OSError:
            # The child's work is not at stake for its log; a full disk is told elsewhere.
            self._size_bytes = os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _leave_out(self, data: bytes) -> None:
        """Keep the head and the last lines of the rest with ``data``, and say how much is gone."""
        head, begins, gone = self._head()
        size_bytes = max(self._size_bytes, begins)
        stays = max(begins, size_bytes - self._tail_bytes)
        rest = os.pread(self._descriptor, size_bytes - stays, stays) + data
        kept = _whole_lines(rest[-self._tail_bytes :])
        gone += size_bytes - begins + len(data) - len(kept)
        note = b"== %s bytes are left out here ==\n" % f"{gone:,}".encode()
        os.ftruncate(self._descriptor, len(head))
        self._write_at(len(head), note + kept)

    def _head(self) -> tuple[bytes, int, int]:
        """Return the head, where the rest begins, and how much was left out before."""
        head = os.pread(self._descriptor, self._head_bytes + _NOTE_BYTES, 0)
        noted = _NOTE.search(head)
        if noted is not None:
            return head[: noted.start()], noted.end(), int(noted[1].replace(b",", b""))
        head = head[: self._head_bytes]
        head = head[: head.rfind(b"\n") + 1] or head
        return head, len(head), 0

    def _write_at(self, place: int, data: bytes) -> None:
        self._size_bytes = place
        while data:
            written = os.pwrite(self._descriptor, data, self._size_bytes)
            self._size_bytes += written
            data = data[written:]


def _whole_lines(text: bytes) -> bytes:
    """Begin with a line, unless the first one is most of the text."""
    begins = text.find(b"\n") + 1
    return text[begins:] if begins <= len(text) // 2 else text
