"""The part of ``upstream.py`` that hears when torch is about to compile, in the calling thread.

Owns the one wrapped function and what a thread is in the middle of. torch's own ways
(``set_stance("fail_on_recompile")``, ``error_on_recompile``) hold for all threads and modules of a
process, so that two requests at once would leave them switched on or off for each other.

Seen: torch 2.13.0 by test; 2.9.1 and 2.14.1 by reading.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

_FRAMES, _COMPILE = "torch._dynamo.convert_frame", "_compile"

Heard = Callable[[], None]


class _Thread(threading.local):
    heard: Heard | None = None


_thread = _Thread()
_installed = False


def listen() -> bool:
    """Begin to hear, once for a process; return whether this release lets us."""
    global _installed
    if _installed:
        return True
    try:
        module = importlib.import_module(_FRAMES)
    except ImportError:
        return False
    inner = getattr(module, _COMPILE, None)
    if inner is None:
        return False

    @functools.wraps(inner)
    def _compile(*args: Any, **kwargs: Any) -> Any:
        if _thread.heard is not None:
            _thread.heard()
        return inner(*args, **kwargs)

    setattr(module, _COMPILE, _compile)
    _installed = True
    return True


@contextlib.contextmanager
def listening(heard: Heard) -> Iterator[None]:
    """Call ``heard`` before each frame that this thread compiles within the block.

    It may raise, and then nothing is compiled.
    """
    outer, _thread.heard = _thread.heard, heard
    try:
        yield
    finally:
        _thread.heard = outer
