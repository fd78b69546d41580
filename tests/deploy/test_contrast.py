"""A graph against the proven ones: every watched fact leads to one declared field."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from prewarm.deploy.contrast import Proven, contrast, told

X = {"name": "x", "dtype": "float32", "shape": [8, 64]}
PROVEN: dict[str, Any] = {
    "pid": 1,
    "frame": {"name": "forward", "of": "Block", "file": "blocks.py", "line": 10},
    "grad": "inference",
    "autocast": "",
    "inputs": [X],
    "parameters": {
        "count": 6, "elements": 33216, "dtypes": {"float32": 6}, "requires_grad": 6, "other": 0,
    },
    "mode": "default",
    "dynamic": "false",
    "config": {},
    "precision": "highest",
    "deterministic": False,
    "threads": 2,
    "outcome": "hit",
    "seconds": 0.1,
    "reason": None,
}  # fmt: skip
SHAPES = (
    {
        "name": "answer",
        "inputs": {"x": {"dtype": "float32", "shape": ["batch", 64]}},
        "sizes": [{"batch": 8}],
    },
)


def graph(**changes: Any) -> dict[str, Any]:
    """Return the proven graph, compiled; a name with ``__`` goes into a table."""
    made = copy.deepcopy(PROVEN) | {"pid": 2, "outcome": "miss", "seconds": 8.0}
    for name, value in changes.items():
        table, _, key = name.partition("__")
        if key:
            made[table][key] = value
        else:
            made[table] = value
    return made


def fields(present: dict[str, Any], *proven: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    known = Proven(proven or (PROVEN,), SHAPES)
    return [(d.fact, d.recorded, d.present) for d in contrast(present, [known]).differences]


CHANGES: list[tuple[dict[str, Any], tuple[str, Any, Any]]] = [
    (
        {"frame__of": "Wrapped", "frame__file": "server.py"},
        ("[compile] targets", "forward of Block (blocks.py)", "forward of Wrapped (server.py)"),
    ),
    (
        {"frame": {"name": "answer", "of": None, "file": "server.py", "line": 3}},
        ("[compile] targets", "forward of Block (blocks.py)", "answer (server.py)"),
    ),
    ({"parameters__requires_grad": 0}, ("[model] requires_grad", "true", "false")),
    (
        {"parameters__requires_grad": 2},
        ("[model] requires_grad", "true", "2 of 6 parameters"),
    ),
    ({"parameters__dtypes": {"bfloat16": 6}}, ("[model] dtype", "float32", "bfloat16")),
    (
        {"parameters__dtypes": {"float16": 4, "float32": 2}},
        ("[model] dtype", "float32", "float16 and float32"),
    ),
    (
        {"parameters__elements": 99},
        ("[model] kwargs", "6 parameters with 33216 elements", "6 parameters with 99 elements"),
    ),
    ({"grad": "grad"}, ("[model] grad", "inference", "grad")),
    ({"autocast": "float16"}, ("[model] autocast", "", "float16")),
    ({"mode": "max-autotune"}, ("[compile] mode", "default", "max-autotune")),
    ({"mode": "default with epilogue_fusion=False"},
     ("[compile] config.epilogue_fusion", None, "False")),
    ({"config": {"max_fusion_size": "7"}}, ("[compile] config.max_fusion_size", None, "7")),
    ({"dynamic": "auto"}, ("[compile] dynamic", "false", "auto")),
    ({"threads": 8}, ("[model] threads", "2", "8")),
    (
        {"precision": "high"},
        ("[model] setup", "float32 matmul precision highest", "float32 matmul precision high"),
    ),
    (
        {"deterministic": True},
        ("[model] setup", "deterministic algorithms false", "deterministic algorithms true"),
    ),
    ({"inputs": [{**X, "dtype": "float16"}]},
     ("[[shapes]] answer inputs.x.dtype", "float32", "float16")),
    ({"inputs": [{**X, "strides": [1, 8]}]},
     ("[[shapes]] answer inputs.x.strides", "contiguous", "strides 1, 8")),
    ({"inputs": [{**X, "requires_grad": True}]},
     ("[[shapes]] answer inputs.x.requires_grad", "false", "true")),
    ({"inputs": [X, X]}, ("[[shapes]] answer inputs", "1 tensors", "2 tensors")),
    ({"inputs": [{**X, "shape": [3, 64]}]},
     ("[[shapes]] answer sizes", "batch = 8", "batch = 3")),
    ({"inputs": [{**X, "shape": [8, 32]}]},
     ("[[shapes]] answer inputs.x.shape", "8 × 64", "8 × 32")),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "field"), CHANGES, ids=lambda case: str(case)[:40])
def test_one_change_is_one_field(changes: dict[str, Any], field: tuple[str, Any, Any]) -> None:
    assert fields(graph(**changes)) == [field]


def test_every_watched_fact_leads_somewhere() -> None:
    tried = {name.partition("__")[0] for changes, _ in CHANGES for name in changes}
    assert tried == PROVEN.keys() - {"pid", "outcome", "seconds", "reason"}


def test_the_nearest_proven_graph_is_compared() -> None:
    other = graph(mode="max-autotune", grad="no_grad", threads=1)
    present = graph(mode="max-autotune", grad="no_grad", threads=4)
    assert fields(present, PROVEN, other) == [("[model] threads", "1", "4")]


def test_one_of_the_same_target_is_nearer_than_one_of_another() -> None:
    elsewhere = graph(frame__of="Other", mode="default")
    present = graph(mode="max-autotune", grad="grad")
    assert [fact for fact, _, _ in fields(present, elsewhere, PROVEN)] == [
        "[compile] mode",
        "[model] grad",
    ]


def test_another_target_explains_another_number_of_parameters() -> None:
    part = graph(
        frame__of="Encoder",
        parameters__count=2,
        parameters__elements=10,
        parameters__requires_grad=2,
    )
    assert [fact for fact, _, _ in fields(part)] == ["[compile] targets"]


def test_a_size_is_told_with_the_line_that_declares_it() -> None:
    found = contrast(graph(inputs=[{**X, "shape": [3, 64]}]), [Proven((PROVEN,), SHAPES)])
    assert found.advice == ('in [[shapes]] "answer" add { batch = 3 } to sizes',)
    (difference,) = found.differences
    assert told(difference) == (
        "[[shapes]] answer sizes: batch = 3 in this start, batch = 8 in the proof"
    )


def test_an_open_size_of_another_name_is_the_same_shape() -> None:
    known = graph(dynamic="true", inputs=[{**X, "shape": ["s0", 64], "sizes": [8, 64]}])
    present = graph(dynamic="true", inputs=[{**X, "shape": ["s77", 64], "sizes": [8, 64]}])
    assert fields(present, known) == []


def test_without_a_declaration_the_shape_is_told() -> None:
    found = contrast(graph(inputs=[{**X, "shape": [3, 64]}]), [Proven((PROVEN,))])
    (difference,) = found.differences
    assert (difference.fact, difference.present) == ("[[shapes]] sizes", "3 × 64")


def test_channels_last_is_a_field_of_the_model() -> None:
    image = {"name": "x", "dtype": "float32", "shape": [2, 3, 8, 8]}
    last = {**image, "strides": [192, 1, 24, 3]}
    assert fields(graph(inputs=[last]), graph(inputs=[image])) == [
        ("[model] memory_format", "contiguous", "channels_last")
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "nothing that is watched differs"),
        ({"outcome": "bypass", "reason": "autocast inside forward"}, "autocast inside forward"),
        ({"outcome": "off"}, "asked no cache"),
        ({"frame": None}, "could not be watched"),
    ],
)
def test_where_no_field_differs_that_is_said(changes: dict[str, Any], words: str) -> None:
    found = contrast(graph(**changes), [Proven((PROVEN,), SHAPES)])
    assert found.differences == ()
    assert found.note is not None
    assert words in found.note


def test_a_proof_of_an_older_prewarm_names_no_graph() -> None:
    old = Proven.of({"proof": {"graphs_compiled": 0}})
    found = contrast(graph(grad="grad"), [old])
    assert found.note is not None
    assert "names its graphs" in found.note


def test_an_entry_gives_its_graphs_and_its_declared_shapes() -> None:
    entry = {"proof": {"graphs": [PROVEN], "declared": {"shapes": list(SHAPES)}}}
    assert Proven.of(entry) == Proven((PROVEN,), SHAPES)
    assert Proven.of({"proof": {"graphs": None, "declared": None}}) == Proven((), ())
