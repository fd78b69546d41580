"""The compile run: every declared call cold, then its steady speed against eager's, in one process.

Fills the cache directories that the builder named by variables; judges nothing.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from typing import Any

from . import outputs, shim, surroundings, upstream_mends, upstream_tuned
from .protocol import Channel, reason_of
from .reporting import start_report
from .session import DeclaredCall, Session
from .timing import side_by_side_ms
from .turn import Alone


def answer(request: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Compile all declared calls under ``request["mode"]`` and return what was seen.

    The request holds ``declaration``, ``checkpoint`` (path), ``mode``, and ``recompile_limit`` (or
    None).
    """
    channel.progress("import", what="importing torch")
    session = Session(request["declaration"], request["checkpoint"])
    _raise_recompile_limit(request.get("recompile_limit"))
    if session.device == "cuda":
        _settle_ptxas()
    channel.progress("load", seconds=round(session.load_s, 2))
    calls, failed = _all_cold(session, request["mode"], channel)
    for number, call in enumerate(session.calls):
        if call.name in failed:
            continue
        channel.progress(
            "steady", call=number + 1, of=len(session.calls), shape_set=call.name, sizes=call.sizes
        )
        calls[number].update(_steady(session, call))
    return {
        "mode": request["mode"],
        "load_s": round(session.load_s, 3),
        "calls": calls,
        "failed": failed,
        "peak_memory_bytes": session.peak_memory_bytes(),
        "report": start_report(session.device),
    }


def _all_cold(
    session: Session, mode: str, channel: Channel
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Make every declared call once; a shape set that raises does not hold back the others.

    Returns the calls in the declared order, and the reason of each shape set that failed. Out of
    memory is the whole run's failure, since a lighter mode may help; so is a run of which nothing
    is left.
    """
    calls: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    started_s = time.perf_counter()
    session.compile(mode)
    for number, call in enumerate(session.calls):
        made: dict[str, Any] = {"shape_set": call.name, "sizes": call.sizes}
        if call.name not in failed:
            channel.progress(
                "cold",
                call=number + 1,
                of=len(session.calls),
                shape_set=call.name,
                sizes=call.sizes,
            )
            try:
                made = _cold(session, call, started_s)
            except Exception as error:
                code, reason = reason_of(error)
                if code != "raised" or len(failed) + 1 == len({c.name for c in session.calls}):
                    raise
                traceback.print_exc(file=sys.stderr)
                failed[call.name] = reason
        calls.append(made)
        started_s = time.perf_counter()
    return calls, failed


def _raise_recompile_limit(limit: int | None) -> None:
    if limit is None:
        return
    import torch._dynamo.config

    upstream_mends.raise_recompile_limit(torch._dynamo.config, int(limit))


def _settle_ptxas() -> None:
    # The keys of the kernels must not depend on what this process happened to compile first.
    from torch._inductor.runtime import compile_tasks

    upstream_tuned.settle_ptxas(compile_tasks)


def _cold(session: Session, call: DeclaredCall, started_s: float) -> dict[str, Any]:
    arguments = session.arguments(call)
    graphs, breaks = _dynamo_counts()
    watcher = shim.watcher
    if watcher is None:
        raise RuntimeError("the compile run must be watched: PREWARM_REPORT_DIR is not set")
    with watcher.call(call.name, call.sizes) as seen:
        session.run(call, arguments)
    ended_s = time.perf_counter()
    graphs_now, breaks_now = _dynamo_counts()
    return {
        "shape_set": call.name,
        "sizes": call.sizes,
        "cold_s": round(ended_s - started_s, 3),
        # The builder knows when this process held still meanwhile.
        "cold_between": [started_s, ended_s],
        "compiled_frames": seen.compiled_frames,
        "graphs": graphs_now - graphs,
        "graph_breaks": [
            reason for reason in breaks_now if breaks_now[reason] > breaks.get(reason, 0)
        ],
    }


def _dynamo_counts() -> tuple[int, dict[str, int]]:
    """Return dynamo's counts of graphs and of graph breaks by reason.

    These are not replayed on a hit.
    """
    from torch._dynamo.utils import counters

    breaks = {
        " ".join(str(reason).split())[:300]: n for reason, n in counters["graph_break"].items()
    }
    return int(counters["stats"].get("unique_graphs", 0)), breaks


def _steady(session: Session, call: DeclaredCall) -> dict[str, Any]:
    arguments = session.arguments(call)

    def compiled() -> object:
        return session.run(call, arguments)

    def eager() -> object:
        with surroundings.stance("force_eager"):
            return session.run(call, arguments)

    if os.environ.get("PREWARM_STEADY") == "0" or _changes_inputs(session, call):
        return {"compiled_ms": None, "eager_ms": None}
    with Alone():
        compiled_ms, eager_ms = side_by_side_ms(compiled, eager)
    return {"compiled_ms": round(compiled_ms, 4), "eager_ms": round(eager_ms, 4)}


def _changes_inputs(session: Session, call: DeclaredCall) -> bool:
    """Tell whether the call writes to its own inputs: then it cannot be repeated on them."""
    arguments = session.arguments(call)
    before = outputs.kept(arguments)
    with surroundings.stance("force_eager"):
        session.run(call, arguments)
    same = outputs.compare(outputs.kept(arguments), before, before)
    return bool(same["state"] == "differ")
