"""A summary is small and harmless, whatever a deployment sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prewarm.store.start_summary import MOST_BYTES, MOST_GRAPHS, StartSummary

FIELDS = ("graphs_compiled", "fx_misses", "triton_compiled", "files_changed")

X = {"name": "x", "dtype": "float32", "shape": [3, 64]}


def graph(outcome: Any = "miss", frame: Any = None, inputs: Any = None) -> dict[str, Any]:
    return {
        "outcome": outcome,
        "frame": {"name": "forward", "of": "Block"} if frame is None else frame,
        "inputs": [X] if inputs is None else inputs,
    }


def graphs_of(*graphs: Any) -> tuple[Any, ...]:
    return StartSummary.of({"graphs": list(graphs)}, ()).graphs


def test_counts_that_are_not_zero_and_what_cannot_be_told() -> None:
    report = {"graphs_compiled": 2, "fx_misses": 0, "triton_compiled": "n/a", "other": 9}
    summary = StartSummary.of(report, FIELDS)

    assert summary.counts == {"graphs_compiled": 2}
    assert summary.cannot_tell == ("files_changed",)
    assert StartSummary.from_json(summary.to_json()) == summary


@pytest.mark.parametrize("outcome", ["miss", "traced", "off", "bypass", "unfinished"])
def test_graphs_that_were_compiled_are_kept_once(outcome: str) -> None:
    assert graphs_of(graph(outcome), graph(outcome), graph("hit"), graph(None)) == ((X,),)


def test_the_sizes_of_an_open_shape_count() -> None:
    given_ = {"name": "x", "dtype": "float32", "shape": ["s0", 64], "sizes": [3, 64]}
    assert graphs_of(graph(inputs=[given_])) == ((X,),)


@pytest.mark.parametrize(
    "one",
    [
        1, None, [], graph("hit"), graph("nothing"), graph(3), graph(frame=3), graph(frame={}),
        graph(frame={"name": 3}), graph(frame={"name": "torch_dynamo_resume_in_forward_at_8"}),
        graph(inputs=3), graph(inputs=[]), graph(inputs=[3]), graph(inputs=[X] * 17),
        graph(inputs=[{**X, "dtype": "\x1b[31m"}]), graph(inputs=[{**X, "dtype": None}]),
        graph(inputs=[{**X, "shape": "3"}]), graph(inputs=[{**X, "shape": [1] * 9}]),
        graph(inputs=[{**X, "shape": ["s0"]}]), graph(inputs=[{**X, "shape": [True]}]),
        graph(inputs=[{**X, "shape": [-1]}]), graph(inputs=[{**X, "shape": [1 << 60]}]),
    ],
)  # fmt: skip
def test_what_is_no_compiled_call_is_left_out(one: Any) -> None:
    assert graphs_of(one) == ()


@pytest.mark.parametrize("name", ["\x1b]0;owned\x07", "", "a" * 65, "x\n", "x y", 3, None, "ü"])
def test_a_name_that_could_do_harm_is_none(name: Any) -> None:
    [[tensor]] = graphs_of(graph(inputs=[{**X, "name": name}]))
    assert tensor == {**X, "name": "?"}


def test_many_graphs_stay_small() -> None:
    many = [
        graph(inputs=[{**X, "name": "n" * 64, "shape": [number] * 8}] * 16)
        for number in range(10_000)
    ]
    summary = StartSummary.of({"graphs": many}, ())
    assert len(summary.graphs) == MOST_GRAPHS
    text = summary.to_json()
    assert len(text) <= MOST_BYTES
    assert 0 < len(StartSummary.from_json(text).graphs) < MOST_GRAPHS


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda below: (
        st.lists(below, max_size=4)
        | st.dictionaries(
            st.sampled_from(["outcome", "frame", "inputs", "name", "dtype", "shape", "sizes"]),
            below,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.lists(_JSON, max_size=4))
def test_whatever_came_the_summary_is_printable(graphs: list[Any]) -> None:
    text = StartSummary.of({"graphs": graphs}, FIELDS).to_json()
    assert text.isascii()
    assert text.isprintable()
    assert StartSummary.from_json(text).graphs == graphs_of(*graphs)
    assert json.loads(text)["counts"] == {}
