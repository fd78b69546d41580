"""Frames traced again: in a server no call is marked, so new inputs are what explains them."""

from __future__ import annotations

from typing import Any

from prewarm.torchside.recompiles import count_recompiles

FRAME = {"name": "forward", "of": "Net", "file": "net.py", "line": 3}


def traced(number: int, *sizes: int, frame: Any = FRAME, pid: int = 1) -> list[dict[str, Any]]:
    """Return the events of one trace: ``number`` is how often the frame was traced before."""
    compile_id = f"0/{number}"
    inputs = [{"name": "x", "dtype": "float32", "shape": list(sizes)}]
    return [
        {"event": "graph", "pid": pid, "compile_id": compile_id, "frame": frame, "inputs": inputs},
        {"event": "frame", "pid": pid, "id": compile_id, "again": number > 0},
    ]


def test_each_size_is_traced_once_by_design() -> None:
    assert count_recompiles(traced(0, 1, 8) + traced(1, 2, 8) + traced(2, 4, 8)) == 0


def test_the_same_size_again_is_not() -> None:
    assert count_recompiles(traced(0, 1, 8) + traced(1, 1, 8)) == 1


def test_another_frame_or_process_has_sizes_of_its_own() -> None:
    other = {**FRAME, "name": "encode"}
    assert count_recompiles(traced(0, 1, 8) + traced(1, 1, 8, frame=other)) == 0
    assert count_recompiles(traced(0, 1, 8) + traced(1, 1, 8, pid=2)) == 0


def test_a_frame_again_without_a_graph_has_no_reason() -> None:
    assert count_recompiles([{"event": "frame", "pid": 1, "id": "0/1", "again": True}]) == 1
    assert count_recompiles([{"event": "frame", "pid": 1, "id": "0/0", "again": False}]) == 0


def test_marked_calls_tell_by_themselves() -> None:
    call = {"event": "call", "shape_set": "rows", "sizes": {"batch": 1}}
    assert count_recompiles([*traced(0, 1, 8), call, *traced(1, 2, 8), call]) == 1
