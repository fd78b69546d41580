"""One start of a server as declared, timed from the process's own begin: an arm of ``bench``.

Asks for what the arm says and judges nothing (``prewarm/build/side_by_side.py``). Unlike a proof it
makes no call twice before the clock is read, and compares no outputs.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

from .protocol import Channel

#: The first call is repeated for this long, and at least this often, for its steady milliseconds.
STEADY_S = 1.0
STEADY_CALLS = 20


def answer(request: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Start as ``request`` says and return the seconds of each step and what was compiled.

    ``eager``: nothing is compiled. ``load_artifacts``, ``save_artifacts``: a file of torch's
    Mega-Cache to read before compiling, or to write at the end.
    """
    from .session import Session

    import_s = _seconds_of_this_process()
    started_s = time.perf_counter()
    session = Session(request["declaration"], request["checkpoint"])
    _synchronize(session)
    build_s = time.perf_counter() - started_s
    channel.progress("load", seconds=round(build_s, 2))
    artifacts_s = _load_artifacts(request.get("load_artifacts"))
    started_s = time.perf_counter()
    if request.get("eager"):
        session.called = session.module
    else:
        session.compile(request["mode"])
    first = session.calls[0]
    session.run(first, session.arguments(first))
    first_s = time.perf_counter() - started_s
    whole_s = _seconds_of_this_process()
    second_s = _timed(session, 0)
    others_s = [_timed(session, number) for number in range(1, len(session.calls))]
    return {
        "import_s": import_s,
        "build_s": build_s,
        "artifacts_s": artifacts_s,
        "first_s": first_s,
        "whole_s": whole_s,
        "second_s": second_s,
        "others_s": others_s,
        "report": _report(session),
        "steady_ms": _steady_ms(session),
        "artifacts_bytes": _save_artifacts(request.get("save_artifacts")),
    }


def _timed(session: Any, number: int) -> float:
    call = session.calls[number]
    started_s = time.perf_counter()
    session.run(call, session.arguments(call))
    return time.perf_counter() - started_s


def _steady_ms(session: Any) -> float:
    call = session.calls[0]
    arguments = session.arguments(call)
    taken_ms: list[float] = []
    ends_s = time.perf_counter() + STEADY_S
    while len(taken_ms) < STEADY_CALLS or time.perf_counter() < ends_s:
        started_s = time.perf_counter()
        session.run(call, arguments)
        taken_ms.append((time.perf_counter() - started_s) * 1000)
    # The first ones still settle: CUDA graphs are recorded in the second call.
    return statistics.median(taken_ms[3:])


def _report(session: Any) -> dict[str, Any]:
    from .reporting import start_report

    return start_report(session.device)


def _synchronize(session: Any) -> None:
    from . import surroundings

    surroundings.synchronize(session.device)


def _load_artifacts(path: str | None) -> float:
    """Hand torch a Mega-Cache and return the seconds that took; 0 without one."""
    if path is None:
        return 0.0
    import torch

    started_s = time.perf_counter()
    torch.compiler.load_cache_artifacts(Path(path).read_bytes())
    return time.perf_counter() - started_s


def _save_artifacts(path: str | None) -> int | None:
    """Write what torch's Mega-Cache holds of this process; return its bytes, None without any."""
    if path is None:
        return None
    import torch

    saved = torch.compiler.save_cache_artifacts()
    if saved is None:
        return None
    return Path(path).write_bytes(saved[0])


def _seconds_of_this_process() -> float:
    """Return the seconds since this process was started, to a hundredth (Linux, ``/proc``)."""
    with open("/proc/self/stat", encoding="utf-8") as file:
        # The name in brackets may hold anything; the start time is the 22nd field (proc(5)).
        ticks = int(file.read().rpartition(")")[2].split()[19])
    begun_s = ticks / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - begun_s
