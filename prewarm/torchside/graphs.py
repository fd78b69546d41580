"""The start report's ``graphs``: each graph that Inductor got, its facts, and what became of it.

Pure: takes events and returns plain values. A graph's facts are told when it comes in and its
outcome when it is done, so a start that was ended in between still tells what it was at.

Outcomes: ``hit``; ``miss`` (compiled); ``traced`` (its kernels were found, AOT autograd worked
again); ``bypass`` (a cache refuses it); ``off`` (compiled, and no cache was asked); ``nothing``
(there was nothing to compile); ``unfinished``; ``None`` where it could not be watched.
"""

from __future__ import annotations

from typing import Any

Event = dict[str, Any]

#: Graphs that a report carries; those that were no hit come first.
KEPT = 40

#: The points that tell a graph's outcome.
_NEEDED = frozenset(["graphs_compiled", "graphs_bypassed", "fx_misses", "aot_misses"])
_KINDS = ("fx_lookup", "fx_bypass", "aot_lookup", "graph_compiled")

#: Not facts of a graph.
_NOT_HANDED_ON = frozenset(["event", "at_s", "graph", "compile_id"])

#: The worse of a forward and its backward graph is what became of both.
_WORST_FIRST = ("unfinished", "bypass", "miss", "off", "traced", None, "hit", "nothing")


def fold_graphs(events: list[Event], missing: set[Any]) -> list[dict[str, Any]] | None:
    """Return the graphs of all processes, or None where their entry could not be watched."""
    if "graphs" in missing:
        return None
    blind = bool(_NEEDED & missing)
    done = {_name(event): event for event in events if event["event"] == "graph_done"}
    found: dict[Any, dict[str, Any]] = {}
    late: dict[Any, list[Event]] = {}
    inside: dict[Any, list[Event]] = {}
    for event in events:
        if event["event"] == "graph":
            facts = {key: value for key, value in event.items() if key not in _NOT_HANDED_ON}
            found[_name(event)] = dict(facts, compile_id=event.get("compile_id"))
        elif event["event"] in _KINDS:
            if event.get("graph") is None:
                late.setdefault((event.get("pid"), event.get("compile_id")), []).append(event)
            else:
                inside.setdefault(_name(event), []).append(event)
    for name, graph in found.items():
        end = done.get(name)
        own = inside.get(name, [])
        graph["outcome"] = None if blind else _outcome(own) if end else "unfinished"
        graph["seconds"] = end.get("seconds") if end else None
        graph["reason"] = _reason(own) or (end.get("failed") if end else None)
    graphs = list(found.values())
    for (pid, compile_id), own in late.items():
        _add_backward(graphs, pid, compile_id, own, blind)
    for graph in graphs:
        graph.pop("compile_id", None)
    # Stable: within both kinds they stay in the order of time.
    return sorted(graphs, key=lambda graph: graph["outcome"] in ("hit", "nothing"))[:KEPT]


def without_restarts(events: list[Event]) -> list[Event]:
    """Leave out the graphs that Dynamo gave up to trace their frame anew, before any was compiled.

    With ``dynamic=True`` a float attribute (a layer norm's eps, say) is an input first, and torch
    starts anew with it as a constant (TensorifyScalarRestartAnalysis, 2.13): the first graph misses
    the AOT cache at each start, compiles nothing, and is no miss of the start.
    """
    given_up = {
        _name(event)
        for event in events
        if event["event"] == "graph_done"
        and str(event.get("failed") or "").endswith("RestartAnalysis")
    }
    given_up -= {_name(event) for event in events if event["event"] == "graph_compiled"}
    return [event for event in events if event.get("graph") is None or _name(event) not in given_up]


def _name(event: Event) -> tuple[Any, Any]:
    return event.get("pid"), event.get("graph")


def _outcome(events: list[Event]) -> str | None:
    kinds = {event["event"] for event in events}
    states = {event.get("state") for event in events if "state" in event}
    if "fx_bypass" in kinds or "bypass" in states:
        return "bypass"
    if "miss" in states:
        found = ("fx_lookup", "hit") in {(event["event"], event.get("state")) for event in events}
        return "traced" if found and "graph_compiled" not in kinds else "miss"
    if "graph_compiled" in kinds:
        return "off"
    if None in states:
        return None
    return "hit" if "hit" in states else "nothing"


def _reason(events: list[Event]) -> str | None:
    reasons = [
        event.get("reason")
        for event in events
        if event["event"] == "fx_bypass" or event.get("state") == "bypass"
    ]
    return next((reason for reason in reasons if reason), None)


def _add_backward(
    graphs: list[dict[str, Any]], pid: Any, compile_id: Any, events: list[Event], blind: bool
) -> None:
    """Add what came after its graph was done to that graph: its backward was compiled lazily."""
    outcome = None if blind else _outcome(events)
    seconds = sum(event.get("seconds") or 0 for event in events)
    for graph in reversed(graphs):
        if graph.get("pid") == pid and compile_id and graph["compile_id"] == compile_id:
            graph["backward"] = outcome
            graph["outcome"] = min(graph["outcome"], outcome, key=_WORST_FIRST.index)
            graph["seconds"] = round((graph["seconds"] or 0) + seconds, 3)
            graph["reason"] = graph["reason"] or _reason(events)
            return
    graphs.append(
        {"pid": pid, "outcome": outcome, "seconds": round(seconds, 3), "reason": _reason(events)}
    )
