"""Which frames of a start were traced again without a reason. Pure.

A static size is a graph of its own, so the first call of each size traces its frames again by
design; the same call made once more must not.
"""

from __future__ import annotations

from typing import Any

Event = dict[str, Any]


def count_recompiles(events: list[Event]) -> int:
    """Count the frames that were traced again and that no new input explains.

    Where the calls are marked (a build, a proof) they tell which inputs are new; in a server, which
    marks none, the graphs do.
    """
    if any(event["event"] == "call" for event in events):
        return _by_calls(events)
    return _by_graphs(events)


def _by_calls(events: list[Event]) -> int:
    unexplained, pending = 0, 0
    known: set[str] = set()
    for event in events:
        if event["event"] == "frame" and event.get("again"):
            pending += 1
        elif event["event"] == "call":
            name = repr((event.get("shape_set"), event.get("sizes")))
            unexplained += pending if name in known else 0
            known.add(name)
            pending = 0
    return unexplained + pending


def _by_graphs(events: list[Event]) -> int:
    unexplained = 0
    known: set[str] = set()
    inputs: dict[Any, str] = {}
    for event in events:
        place = (event.get("pid"), event.get("compile_id") or event.get("id"))
        if event["event"] == "graph":
            # All graphs of one trace: it may be given up and begun anew.
            inputs[place] = repr((event.get("pid"), event.get("frame"), event.get("inputs")))
        elif event["event"] == "frame":
            given = inputs.pop(place, None)
            if event.get("again") and (given is None or given in known):
                unexplained += 1
            if given is not None:
                known.add(given)
    return unexplained
