"""A start report says what was seen, ``None`` for what could not be.

``"n/a"`` for what is not here.
"""

from __future__ import annotations

import pytest

from prewarm.torchside.points import Point
from prewarm.torchside.report import fold
from prewarm.torchside.upstream import POINTS

START = {"event": "start", "pid": 1, "uid": 0, "python": "3.11.7", "rank": None}
FILES = {"event": "files", "pid": 1, "changed": [], "count": 0}


def events(*more: dict) -> list[dict]:
    return [START, *more, FILES]


def test_a_quiet_start_is_all_zeros() -> None:
    report = fold(events(), has_triton=False)
    counts = {name: value for name, value in report.items() if isinstance(value, int)}
    assert len(counts) == 11
    assert set(counts.values()) == {0}
    assert report["triton_compiled"] == "n/a"


def test_no_events_at_all_cannot_be_told() -> None:
    report = fold([], has_triton=True)
    assert report["graphs_compiled"] is None
    assert report["compilers_started"] is None
    assert report["files_changed"] is None


def test_a_missing_point_makes_its_field_null_and_no_other() -> None:
    missing = {
        "event": "point",
        "module": "m",
        "attribute": "a",
        "field": "fx_misses",
        "there": False,
    }
    report = fold(events(missing), has_triton=True)
    assert report["fx_misses"] is None
    assert report["graphs_compiled"] == 0
    assert report["not_watched"] == ["m:a"]


NEEDED = [point for point in POINTS if point.field is not None]


@pytest.mark.parametrize("point", NEEDED, ids=lambda point: point.attribute)
def test_without_any_one_of_the_points_something_is_null(point: Point) -> None:
    call = {"event": "call", "shape_set": "s", "sizes": {}, "compiled_frames": 1}
    graph = {"event": "graph", "graph": 1}
    whole = fold(events(graph, call), has_triton=True)
    missing = {
        "event": "point",
        "module": point.module,
        "attribute": point.attribute,
        "field": point.field,
        "there": False,
    }
    report = fold(events(missing, graph, call), has_triton=True)
    nulls = {name for name, value in report.items() if value is None}
    if report["graphs"] is not None and report["graphs"][0]["outcome"] is None:
        nulls.add("graphs")
    if report["calls"][0]["compiled_frames"] is None:
        nulls.add("calls")
    assert nulls, "a start without this point looks like one with it"
    assert None not in whole.values()
    assert whole["graphs"][0]["outcome"] == "unfinished"
    assert report["not_watched"] == [f"{point.module}:{point.attribute}"]


def test_a_lookup_that_does_not_tell_its_end_is_null() -> None:
    told = fold(events({"event": "aot_lookup", "state": None}), has_triton=True)
    assert (told["aot_misses"], told["aot_bypassed"], told["fx_misses"]) == (None, None, 0)
    told = fold(events({"event": "fx_lookup", "state": None}), has_triton=True)
    assert (told["fx_misses"], told["aot_misses"]) == (None, 0)


def test_a_process_tells_where_it_ran_and_after_how_long() -> None:
    frame = {"event": "frame", "pid": 1, "at_s": 12.0, "seconds": 2.0, "again": False}
    ran = [
        {"event": "ran", "pid": 1, "at_s": at_s, "device_index": index}
        for at_s, index in ((13.5, 1), (14.0, 0), (15.0, None))
    ]
    (process,) = fold(events(frame, *ran), has_triton=True)["processes"]
    assert (process["device_indices"], process["first_run_s"]) == ([0, 1], 3.5)
    (process,) = fold(events(), has_triton=True)["processes"]
    assert (process["device_indices"], process["first_run_s"]) == ([], None)


def test_dropped_records_make_every_count_null() -> None:
    report = fold(events({"event": "finish", "dropped": 1}), has_triton=True)
    assert report["graphs_compiled"] is None
    assert report["compilers_started"] is None


def test_a_start_that_never_compared_its_files_cannot_tell_them() -> None:
    assert fold([START], has_triton=True)["files_changed"] is None


def test_changed_files_beyond_the_named_ones_are_counted() -> None:
    many = {"event": "files", "changed": ["inductor: a"], "count": 700}
    assert fold([START, many], has_triton=True)["files_changed"] == 700


def test_counts_and_reasons() -> None:
    report = fold(
        events(
            {"event": "graph_compiled"},
            {"event": "fx_lookup", "state": "miss"},
            {"event": "fx_lookup", "state": "hit"},
            {"event": "fx_bypass", "reason": "a raw callable"},
            {"event": "aot_lookup", "state": "miss"},
            {"event": "aot_lookup", "state": "bypass", "reason": "autocast"},
            {"event": "benchmarked", "by": "autotuning"},
            {"event": "benchmarked", "by": "coordinate descent"},
            {"event": "compiler", "program": "g++"},
            {"event": "limit", "which": "recompile_limit"},
            {"event": "cpp_compiled"},
            {"event": "triton_compiled"},
        ),
        has_triton=True,
    )
    assert {name: value for name, value in report.items() if isinstance(value, int)} == {
        "graphs_compiled": 1,
        "graphs_bypassed": 1,
        "fx_misses": 1,
        "aot_misses": 1,
        "aot_bypassed": 1,
        "cpp_compiled": 1,
        "triton_compiled": 1,
        "benchmarked_autotuning": 1,
        "benchmarked_coordinate_descent": 1,
        "recompiles": 0,
        "limits_hit": 1,
        "compilers_started": 1,
        "files_changed": 0,
    }
    assert report["bypass_reasons"] == ["a raw callable", "autocast"]


def test_a_frame_traced_again_is_explained_by_the_first_call_of_a_size_only() -> None:
    again = {"event": "frame", "again": True}
    first = {"event": "call", "shape_set": "s", "sizes": {"b": 1}}
    second = {"event": "call", "shape_set": "s", "sizes": {"b": 2}}
    assert fold(events(first, again, second), has_triton=False)["recompiles"] == 0
    assert fold(events(first, again, first), has_triton=False)["recompiles"] == 1
    assert fold(events(first, second, again), has_triton=False)["recompiles"] == 1


def test_files_of_all_processes_are_told_once() -> None:
    changed = [
        {"event": "files", "changed": ["inductor: a"]},
        {"event": "files", "changed": ["inductor: a"]},
    ]
    report = fold([START, *changed], has_triton=False)
    assert (report["files_changed"], report["files"]) == (1, ["inductor: a"])
