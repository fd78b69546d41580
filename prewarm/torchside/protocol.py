"""How a child talks with the builder.

One JSON request on standard input, JSON lines on standard output.

The lines are ``{"progress": {...}}`` as often as something happens, then one ``{"answer": {...}}``
or ``{"failure": {"code", "message", "kind"}}``. Whatever the model's own code prints goes to
standard error, which is the log of the build: file descriptor 1 is moved away before any foreign
code runs.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, TextIO


class Refusal(Exception):
    """A failure with one line for the user and a stable code.

    The traceback still goes to the log.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Channel:
    """The builder's end of standard output, kept for the protocol alone."""

    def __init__(self) -> None:
        self._descriptor = os.dup(1)
        os.set_inheritable(self._descriptor, False)
        os.dup2(2, 1)

    def progress(self, step: str, **fields: Any) -> None:
        """Tell what happens now, for the person who waits."""
        self._line({"progress": dict(fields, step=step)})

    def answer(self, value: Mapping[str, Any]) -> None:
        """Give the one answer."""
        self._line({"answer": value})

    def failure(self, code: str, message: str, kind: str) -> None:
        """Give the reason why there is no answer."""
        self._line(
            {"failure": {"code": code, "message": " ".join(message.split())[:2000], "kind": kind}}
        )

    def _line(self, value: Mapping[str, Any]) -> None:
        data = (json.dumps(value, default=str) + "\n").encode("utf-8", "replace")
        while data:
            data = data[os.write(self._descriptor, data) :]


def read_request(stream: TextIO) -> Any:
    """Return the one request of this child."""
    return json.loads(stream.read())


def reason_of(error: BaseException) -> tuple[str, str]:
    """Return ``(code, one line)`` for an exception of the model's, the loader's or torch's code."""
    if isinstance(error, Refusal):
        return error.code, str(error)
    text = " ".join(str(error).split()) or "no message"
    if _is_out_of_memory(error):
        return "out_of_memory", "out of memory: " + text[:400]
    if (isinstance(error, OSError) and error.errno == 28) or "No space left on device" in text:
        return "no_space", "no space left on the device: " + text[:300]
    return "raised", "%s: %s%s" % (type(error).__name__, text[:600], _place(error))


def _is_out_of_memory(error: BaseException) -> bool:
    names = [cls.__name__ for cls in type(error).__mro__]
    return (
        "OutOfMemoryError" in names
        or "MemoryError" in names
        or "out of memory" in str(error).lower()
    )


def _place(error: BaseException) -> str:
    """Name the last frame outside torch: that is where the user can look."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        frame
        for frame in frames
        if (os.sep + "torch" + os.sep) not in frame.filename
        and "prewarm_torchside" not in frame.filename
        and not frame.filename.startswith("<")
    ]
    return " (%s:%s)" % (os.path.basename(own[-1].filename), own[-1].lineno) if own else ""


Handler = Callable[[dict[str, Any], Channel], dict[str, Any]]


def main(handlers: Mapping[str, Handler]) -> int:
    """Run one request: read it, hand it to its handler, give the answer or the reason, and end."""
    channel = Channel()
    try:
        request = read_request(sys.stdin)
        handler = handlers[request["kind"]]
    except (ValueError, KeyError, TypeError) as error:
        channel.failure("bad_request", "the request is not understood: %r" % (error,), "protocol")
        return 1
    try:
        channel.answer(handler(request, channel))
    except BaseException as error:  # SystemExit of a factory included: it is a reason, not an end
        traceback.print_exc(file=sys.stderr)
        code, message = reason_of(error)
        channel.failure(code, message, type(error).__name__)
        return 1
    return 0
