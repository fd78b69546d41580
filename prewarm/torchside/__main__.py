"""The child of a builder: ``<interpreter> <copy>/prewarm_torchside``, one request, one answer.

Ends with the builder: the kernel sends SIGKILL to this process when its parent dies (Linux
``prctl``), so that a killed builder leaves no compile running.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prewarm_torchside.protocol import Channel

sys.path[:] = [
    entry for entry in sys.path if os.path.abspath(entry or ".") != os.path.dirname(__file__)
]
_COPY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if _COPY not in sys.path:
    sys.path.insert(0, _COPY)


def _end_with_parent() -> None:
    try:
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return


def _probe(request: dict[str, Any], channel: Channel) -> dict[str, Any]:
    from prewarm_torchside import probe

    answer: dict[str, Any] = probe.answer(request, channel)
    return answer


def _compile(request: dict[str, Any], channel: Channel) -> dict[str, Any]:
    from prewarm_torchside import imports, instruction_sets, upstream_mends

    # Before torch is imported. What no variable reaches the shim does for a deployment.
    recorder = instruction_sets.Recorder()
    recorder.start()
    imports.when_imported(
        frozenset(("torch._inductor.config",)), upstream_mends.leave_headers_alone
    )
    from prewarm_torchside import compiling

    answer: dict[str, Any] = compiling.answer(request, channel)
    recorder.write(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    return answer


def _prove(request: dict[str, Any], channel: Channel) -> dict[str, Any]:
    from prewarm_torchside import proving

    answer: dict[str, Any] = proving.answer(request, channel)
    return answer


def _start(request: dict[str, Any], channel: Channel) -> dict[str, Any]:
    from prewarm_torchside import starting

    answer: dict[str, Any] = starting.answer(request, channel)
    return answer


if __name__ == "__main__":
    _end_with_parent()
    from prewarm_torchside import protocol, shim

    shim.start(os.environ)
    code = protocol.main({"probe": _probe, "compile": _compile, "prove": _prove, "start": _start})
    if shim.watcher is not None:
        shim.watcher.finish()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: threads that a model left running must not keep a child alive that has answered.
    os._exit(code)
