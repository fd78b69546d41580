"""A graph that Dynamo gave up for another look at its frame is no miss; one that failed is."""

from __future__ import annotations

import pytest

from prewarm.torchside.report import fold

START = {"event": "start", "pid": 1}
GRAPH = {"event": "graph", "pid": 1, "graph": 1}
MISS = {"event": "aot_lookup", "pid": 1, "graph": 1, "state": "miss"}
COMPILED = {"event": "graph_compiled", "pid": 1, "graph": 1}
HIT = {"event": "aot_lookup", "pid": 1, "graph": 2, "state": "hit"}


def done(failed: str | None, graph: int = 1) -> dict:
    return {"event": "graph_done", "pid": 1, "graph": graph, "failed": failed}


def test_a_graph_that_was_traced_anew_is_no_miss() -> None:
    again = [{**GRAPH, "graph": 2}, HIT, done(None, 2)]
    events = [START, GRAPH, MISS, done("TensorifyScalarRestartAnalysis"), *again]
    report = fold(events, has_triton=False)
    assert report["aot_misses"] == 0
    assert [graph["outcome"] for graph in report["graphs"]] == ["hit"]


@pytest.mark.parametrize("failed", [None, "RuntimeError"])
def test_any_other_end_is_a_miss(failed: str | None) -> None:
    assert fold([START, GRAPH, MISS, done(failed)], has_triton=False)["aot_misses"] == 1


def test_what_was_compiled_before_the_restart_counts() -> None:
    events = [START, GRAPH, MISS, COMPILED, done("TensorifyScalarRestartAnalysis")]
    report = fold(events, has_triton=False)
    assert (report["aot_misses"], report["graphs_compiled"]) == (1, 1)
