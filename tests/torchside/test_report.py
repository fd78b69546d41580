"""A start report says what was seen, ``None`` for what could not be.

``"n/a"`` for what is not here.
"""

from __future__ import annotations

from prewarm.torchside.report import fold

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
