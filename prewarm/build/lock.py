"""One prewarm at a time works on a state directory: a kernel lock that dies with its holder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from prewarm.errors import LockHeld, NotWritable
from prewarm.store.whole_file import make_directory, write_errors

LOCK_NAME = "lock"

#: How a service signs; it can be asked by its doorbell.
SERVICE = "prewarm serve"


@contextlib.contextmanager
def state_lock(state_dir: Path, *, what: str, at: str) -> Iterator[None]:
    """Hold the lock of ``state_dir``; ``what`` and ``at`` tell others who holds it since when.

    Raises:
        LockHeld: another process holds it; the message names that process.
        NotWritable: the directory cannot be written.
        NoSpace: no space left in it.

    """
    path = state_dir / LOCK_NAME
    try:
        make_directory(state_dir)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except (NotWritable, OSError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        raise NotWritable(
            f"state_dir {state_dir}: {getattr(cause, 'strerror', cause)}; make it writable or name "
            "another with --state-dir"
        ) from error
    with os.fdopen(descriptor, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockHeld(f"{_holder(file.read())} holds {path}; wait for it or end it") from None
        _sign(path, {"pid": os.getpid(), "what": what, "since": at})
        yield


def service_holding(state_dir: Path) -> str | None:
    """Return which `prewarm serve` holds the lock, where ``LockHeld`` told that it is held."""
    with contextlib.suppress(OSError, ValueError):
        text = (state_dir / LOCK_NAME).read_text()
        if _holder(text).startswith(SERVICE):
            return _holder(text)
    return None


def _sign(path: Path, holder: dict[str, object]) -> None:
    # In place: a renamed file would be another lock.
    with write_errors(path):
        path.write_text(json.dumps(holder))


def _holder(text: str) -> str:
    try:
        told = json.loads(text)
        return f"{told['what']} (pid {told['pid']}, since {told['since']})"
    except (ValueError, KeyError, TypeError):
        return "another prewarm"
