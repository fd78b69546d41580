"""The start report (design.md §8).

The events of one start, folded into counts, ``null`` and ``"n/a"``.

Pure: takes events and returns plain values. ``null`` (None) means that the count could not be
watched; ``"n/a"`` that the thing does not exist here (Triton on a CPU); neither is 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .graphs import fold_graphs, without_restarts
from .recompiles import count_recompiles

Event = dict[str, Any]

NOT_HERE = "n/a"
_KEPT = 20  # examples of each kind that a report carries, so that it stays small

#: A field that needs a point; where the point is missing in an imported module, the field is null.
_COUNTS = {
    "graphs_compiled": "graphs_compiled",
    "graphs_bypassed": "graphs_bypassed",
    "fx_misses": "fx_misses",
    "aot_misses": "aot_misses",
    "aot_bypassed": "aot_misses",
    "cpp_compiled": "cpp_compiled",
    "triton_compiled": "triton_compiled",
    "benchmarked_autotuning": "benchmarked",
    "benchmarked_coordinate_descent": "descents",
    "recompiles": "recompiles",
    "limits_hit": "limits_hit",
}


def fold(events: list[Event], has_triton: bool) -> dict[str, Any]:
    """Return the start report of one start from all its processes' events.

    ``has_triton`` is whether kernels are compiled by Triton here; if not, its fields are ``"n/a"``.
    """
    events = without_restarts(events)
    missing = _missing(events)
    blind = not events or any(event.get("dropped") for event in events)
    counts = _count(events)
    counts["recompiles"] = count_recompiles(events)
    report: dict[str, Any] = {}
    for name, field in _COUNTS.items():
        report[name] = None if blind or field in missing else counts.get(name, 0)
    if not has_triton:
        report["triton_compiled"] = NOT_HERE
        report["benchmarked_coordinate_descent"] = NOT_HERE
    compilers = [event for event in events if event["event"] == "compiler"]
    report["compilers_started"] = None if blind else len(compilers)
    changed = _changed_files(events)
    report["files_changed"] = None if blind or changed is None else _number_changed(events, changed)
    report["bypass_reasons"] = None if "bypass_reasons" in missing else _bypass_reasons(events)
    report["compilers"] = _distinct(event.get("program") for event in compilers)
    report["files"] = (changed or [])[:_KEPT]
    report["calls"] = [
        _call(event, "graph_runs" in missing) for event in events if event["event"] == "call"
    ]
    report["graphs"] = None if blind else fold_graphs(events, missing)
    report["processes"] = [
        _process(event, events, "graph_runs" in missing)
        for event in events
        if event["event"] == "start"
    ][:_KEPT]
    report["differs"] = [
        {name: event.get(name) for name in ("fact", "recorded", "present", "refused")}
        for event in events
        if event["event"] == "differs"
    ][:_KEPT]
    report["not_watched"] = sorted(
        {
            event["module"] + ":" + event["attribute"]
            for event in events
            if event["event"] == "point" and not event.get("there")
        }
    )
    return report


def _missing(events: list[Event]) -> set[Any]:
    """Return the fields that cannot be told: a point was not there, or a lookup did not tell."""
    missing = {
        event.get("field")
        for event in events
        if event["event"] == "point" and not event.get("there")
    }
    for kind, field in (("fx_lookup", "fx_misses"), ("aot_lookup", "aot_misses")):
        if any(event["event"] == kind and event.get("state") is None for event in events):
            missing.add(field)
    # A tuned configuration is timed by the same function as any other.
    return missing | ({"descents"} if "benchmarked" in missing else set())


def _bypass_reasons(events: list[Event]) -> list[Any]:
    return _distinct(
        event.get("reason")
        for event in events
        if event["event"] == "fx_bypass"
        or (event["event"] == "aot_lookup" and event.get("state") == "bypass")
    )


def _process(start: Event, events: list[Event], blind: bool) -> dict[str, Any]:
    own = [event for event in events if event.get("pid") == start.get("pid")]
    ran = [event for event in own if event["event"] == "ran"]
    frames = [event["at_s"] - event["seconds"] for event in own if event["event"] == "frame"]
    devices = sorted(
        {int(event["device_index"]) for event in ran if event["device_index"] is not None}
    )
    seconds = round(ran[0]["at_s"] - min(frames), 3) if ran and frames else None
    return {
        **{key: start.get(key) for key in ("pid", "uid", "python", "rank", "device_index")},
        "device_indices": None if blind else devices,
        "first_run_s": seconds,
    }


def _count(events: list[Event]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for event in events:
        for name in _names(event):
            counts[name] = counts.get(name, 0) + 1
    return counts


def _names(event: Event) -> tuple[str, ...]:
    kind, state = event["event"], event.get("state")
    if kind == "graph_compiled":
        return ("graphs_compiled",)
    if kind == "fx_bypass":
        return ("graphs_bypassed",)
    if kind == "fx_lookup":
        return ("fx_misses",) if state == "miss" else ()
    if kind == "aot_lookup":
        return {"miss": ("aot_misses",), "bypass": ("aot_bypassed",)}.get(str(state), ())
    if kind in ("cpp_compiled", "triton_compiled"):
        return (kind,)
    if kind == "benchmarked":
        descent = event.get("by") == "coordinate descent"
        return ("benchmarked_coordinate_descent",) if descent else ("benchmarked_autotuning",)
    if kind == "limit":
        return ("limits_hit",)
    return ()


def _changed_files(events: list[Event]) -> list[str] | None:
    """Return the changed files of all processes, or None if none could compare to the end."""
    finished = [event for event in events if event["event"] == "files"]
    if not finished:
        return None
    names: list[str] = []
    for event in finished:
        names.extend(event.get("changed", ()))
    return _distinct(names, kept=None)


def _number_changed(events: list[Event], names: list[str]) -> int:
    """Return how many files changed; a process names only its first 200 but counts them all."""
    counts = [int(event.get("count") or 0) for event in events if event["event"] == "files"]
    return max([len(names), *counts])


def _call(event: Event, blind: bool) -> dict[str, Any]:
    return {
        "shape_set": event.get("shape_set"),
        "sizes": event.get("sizes"),
        "seconds": event.get("seconds"),
        "compiled_frames": None if blind else event.get("compiled_frames"),
    }


def _distinct(values: Iterable[Any], kept: int | None = _KEPT) -> list[Any]:
    seen: list[Any] = []
    for value in values:
        if value is not None and value not in seen:
            seen.append(value)
    return seen[:kept]
