"""The graphs of a start report: each with its facts and with what became of it."""

from __future__ import annotations

from typing import Any

import pytest

from prewarm.torchside.graphs import KEPT, fold_graphs


def began(graph: int = 1, **facts: Any) -> dict[str, Any]:
    return {"event": "graph", "pid": 7, "at_s": 1.0, "graph": graph, "compile_id": "0/0", **facts}


def done(graph: int = 1, **facts: Any) -> dict[str, Any]:
    return {
        "event": "graph_done",
        "pid": 7,
        "graph": graph,
        "seconds": 2.0,
        "failed": None,
        **facts,
    }


def seen(kind: str, state: str | None = None, **facts: Any) -> dict[str, Any]:
    event = {"event": kind, "pid": 7, "graph": 1, **facts}
    return event if kind in ("graph_compiled", "fx_bypass") else {**event, "state": state}


def late(kind: str, state: str | None = None, compile_id: str = "0/0") -> dict[str, Any]:
    return {**seen(kind, state), "graph": None, "compile_id": compile_id, "seconds": 1.5}


HIT, MISS = seen("aot_lookup", "hit"), seen("aot_lookup", "miss")


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ([HIT, seen("fx_lookup", "hit")], "hit"),
        ([MISS, seen("fx_lookup", "miss"), seen("graph_compiled")], "miss"),
        ([MISS, seen("fx_lookup", "hit")], "traced"),
        ([MISS, seen("fx_lookup", "hit"), seen("graph_compiled")], "miss"),
        ([MISS], "miss"),
        ([seen("aot_lookup", "bypass"), seen("fx_lookup", "hit")], "bypass"),
        ([MISS, seen("fx_bypass"), seen("graph_compiled")], "bypass"),
        ([seen("graph_compiled")], "off"),
        ([], "nothing"),
        ([seen("aot_lookup", None), seen("fx_lookup", "hit")], None),
    ],
)
def test_the_outcome_follows_from_the_lookups_within(events: list[Any], outcome: str) -> None:
    (graph,) = fold_graphs([began(), *events, done()], set()) or []
    assert graph["outcome"] == outcome
    assert graph["seconds"] == 2.0


def test_facts_are_handed_on_without_the_event_s_own_words() -> None:
    (graph,) = fold_graphs([began(mode="default", grad="inference"), HIT, done()], set()) or []
    assert graph == {
        "pid": 7, "mode": "default", "grad": "inference", "outcome": "hit", "seconds": 2.0,
        "reason": None,
    }  # fmt: skip


def test_a_start_that_ended_in_a_compile_tells_what_it_was_at() -> None:
    (graph,) = fold_graphs([began(mode="default"), MISS], set()) or []
    assert (graph["outcome"], graph["seconds"], graph["mode"]) == ("unfinished", None, "default")


def test_the_reason_is_the_bypass_s_or_the_error_s() -> None:
    bypass = seen("aot_lookup", "bypass", reason="autocast inside forward")
    (graph,) = fold_graphs([began(), bypass, done()], set()) or []
    assert graph["reason"] == "autocast inside forward"
    (graph,) = fold_graphs([began(), done(failed="BackendCompilerFailed")], set()) or []
    assert graph["reason"] == "BackendCompilerFailed"


def test_a_backward_graph_that_comes_later_is_its_forward_s() -> None:
    events = [began(), HIT, done(), late("fx_lookup", "miss"), late("graph_compiled")]
    (graph,) = fold_graphs(events, set()) or []
    assert (graph["outcome"], graph["backward"], graph["seconds"]) == ("miss", "miss", 5.0)
    (graph,) = fold_graphs([began(), MISS, done(), late("fx_lookup", "hit")], set()) or []
    assert (graph["outcome"], graph["backward"]) == ("miss", "hit")


def test_what_belongs_to_no_graph_is_told_alone() -> None:
    events = [began(), HIT, done(), late("graph_compiled", compile_id="5/0")]
    alone, own = fold_graphs(events, set()) or []
    assert own["outcome"] == "hit"
    assert alone == {"pid": 7, "outcome": "off", "seconds": 1.5, "reason": None}


def test_graphs_of_two_processes_are_kept_apart() -> None:
    other = [{**event, "pid": 8} for event in (began(), MISS, done())]
    first, second = fold_graphs([began(), HIT, done(), *other], set()) or []
    assert [(graph["pid"], graph["outcome"]) for graph in (first, second)] == [
        (8, "miss"),
        (7, "hit"),
    ]


def test_without_the_entry_there_is_no_list_and_without_a_lookup_no_outcome() -> None:
    assert fold_graphs([began(), HIT, done()], {"graphs"}) is None
    (graph,) = fold_graphs([began(mode="default"), HIT, done()], {"fx_misses"}) or []
    assert (graph["outcome"], graph["mode"]) == (None, "default")


def test_what_was_compiled_is_kept_before_what_was_found() -> None:
    events = [event for n in range(KEPT + 5) for event in (began(n), {**HIT, "graph": n}, done(n))]
    events += [began(99), {**MISS, "graph": 99}, done(99)]
    graphs = fold_graphs(events, set()) or []
    assert len(graphs) == KEPT
    assert [graph["outcome"] for graph in graphs[:2]] == ["miss", "hit"]
