"""The proof: the declared calls in a fresh process, from the unpacked bundle, watched.

Asks for nothing that a deployment would not do, then once more with recompiling forbidden, and
compares with eager. Judges nothing: the builder reads the start report
(``prewarm/build/verdict.py``).
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import Any

from . import outputs, shim, surroundings, upstream_mends
from .deep_facts import deep_facts
from .protocol import Channel
from .reporting import start_report
from .session import DeclaredCall, Session


def answer(request: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Make the calls in ``request["order"]`` (indices) and return what was seen.

    ``request["full"]`` asks also for the second round with recompiling forbidden and for eager's
    outputs.
    """
    channel.progress("import", what="importing torch")
    session = Session(request["declaration"], request["checkpoint"])
    channel.progress("load", seconds=round(session.load_s, 2))
    order = [session.calls[index] for index in request["order"]]
    started_s = time.perf_counter()
    session.compile(request["mode"])
    calls, seen = [], []
    for number, call in enumerate(order):
        channel.progress(
            "warm", call=number + 1, of=len(order), shape_set=call.name, sizes=call.sizes
        )
        made, output = _warm(session, call, started_s)
        calls.append(made)
        seen.append(output)
        started_s = time.perf_counter()
    again_failed = _second_round(session, order, channel) if request.get("full") else None
    report = start_report(
        session.device
    )  # before eager runs: its own compiles, if any, are not the start's
    answers = _compare(session, order, seen, channel) if request.get("full") else None
    return {
        "calls": calls,
        "again_failed": again_failed,
        "outputs": answers,
        "load_s": round(session.load_s, 3),
        "peak_memory_bytes": session.peak_memory_bytes(),
        "python": "%d.%d.%d" % sys.version_info[:3],
        "uid": os.getuid(),
        "mends": shim.mends.made if shim.mends is not None else [],
        "unmended": _unmended(session.device),
        "report": report,
        # After the report: to ask torch for the instruction set may start a compiler.
        "deep": deep_facts(session.device) if request.get("full") else None,
    }


def _unmended(device: str) -> list[str]:
    """Name what this start lacked for want of the shim and no count shows."""
    import torch._inductor.config

    found = device == "cpu" and upstream_mends.precompiles_headers(torch._inductor.config)
    return ["precompiled_headers"] if found else []


def _warm(session: Session, call: DeclaredCall, started_s: float) -> tuple[dict[str, Any], Any]:
    import torch

    torch.manual_seed(0)
    arguments = session.arguments(call)
    if shim.watcher is None:
        raise RuntimeError("a proof must be watched: PREWARM_REPORT_DIR is not set")
    with shim.watcher.call(call.name, call.sizes) as seen:
        output = session.run(call, arguments)
    warm_s = time.perf_counter() - started_s
    return {
        "shape_set": call.name,
        "sizes": call.sizes,
        "warm_s": round(warm_s, 3),
        "compiled_frames": seen.compiled_frames,
    }, outputs.kept(output)


def _second_round(session: Session, order: list[DeclaredCall], channel: Channel) -> str | None:
    """Make every call again with recompiling forbidden; return the first reason against it."""
    channel.progress("again", of=len(order))
    for call in order:
        try:
            with surroundings.stance("fail_on_recompile"):
                session.run(call, session.arguments(call))
        except Exception as error:
            text = " ".join(str(error).split())[:400]
            return "%s %s: %s: %s" % (call.name, call.sizes, type(error).__name__, text)
    return None


def _compare(
    session: Session, order: list[DeclaredCall], seen: list[Any], channel: Channel
) -> dict[str, Any]:
    channel.progress("compare", of=len(order))
    worst: dict[str, Any] = {"state": "agree", "worst": 0.0, "tolerance": None}
    for call, output in zip(order, seen, strict=True):
        eager, again = session.run_eager(call), session.run_eager(call, seed=1)
        coarsest = outputs.coarsest_tolerance(partial(session.run_eager, call), session.module)
        found = outputs.compare(output, eager, again, coarsest=coarsest)
        if found["state"] == "differ":
            return dict(found, shape_set=call.name, sizes=call.sizes)
        if found["state"] == "random" or (
            worst["state"] == "agree" and found["worst"] >= worst["worst"]
        ):
            worst = found
    return worst
