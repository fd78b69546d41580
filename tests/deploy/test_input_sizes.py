"""Which declared call a graph's inputs are, told only where names and shapes fit."""

from __future__ import annotations

from typing import Any

import pytest

from prewarm.deploy.input_sizes import Call, call_of, declared_sizes, toml_lines

EMBED = {
    "name": "embed",
    "inputs": {
        "ids": {"dtype": "int64", "shape": ["batch", "seq"]},
        "mask": {"dtype": "int64", "shape": ["batch", "seq"]},
    },
    "sizes": [{"batch": 1, "seq": 32}, {"batch": 8, "seq": 64}],
}
IMAGE = {
    "name": "image",
    "args": [{"dtype": "float32", "shape": ["batch", 3, 8, 8]}],
    "sizes": {"batch": [1, 2]},
}


def given(name: str, *shape: object, **more: Any) -> dict[str, Any]:
    return {"name": name, "dtype": "int64", "shape": list(shape), **more}


def pair(batch: int, seq: int) -> list[dict[str, Any]]:
    return [given("mask", batch, seq), given("ids", batch, seq)]


@pytest.mark.parametrize(
    ("inputs", "call"),
    [
        (pair(8, 64), Call("embed", {"batch": 8, "seq": 64}, True)),
        (pair(8, 32), Call("embed", {"batch": 8, "seq": 32}, False)),
        ([given("ids", 1, 32), given("mask", 1, 16)], None),
        ([given("x", 2, 3, 8, 8)], Call("image", {"batch": 2}, True)),
        ([given("x", 4, 3, 8, 8)], Call("image", {"batch": 4}, False)),
        ([given("x", 4, 3, 9, 8)], None),
        ([given("x", "s0", 3, 8, 8, sizes=[4, 3, 8, 8])], Call("image", {"batch": 4}, False)),
        ([given("x", 7)], None),
        ([*pair(8, 64), given("more", 8, 64)], None),
        ([], None),
    ],
)
def test_inputs_are_the_call_that_they_fit(inputs: list[Any], call: Call | None) -> None:
    assert call_of(inputs, [EMBED, IMAGE]) == call


def test_a_declared_call_is_taken_before_one_of_other_sizes() -> None:
    other = {**EMBED, "name": "long", "sizes": [{"batch": 8, "seq": 512}]}
    found = call_of(pair(8, 512), [EMBED, other])
    assert found == Call("long", {"batch": 8, "seq": 512}, True)


def test_nested_inputs_have_the_names_of_their_places() -> None:
    nested = {
        "name": "nested",
        "inputs": {"batch": {"pixels": {"dtype": "float32", "shape": ["n", 4]}}},
        "sizes": [{"n": 2}],
    }
    found = call_of([given("L['batch']['pixels']", 2, 4)], [nested])
    assert found == Call("nested", {"n": 2}, True)


def test_sizes_are_told_as_they_are_written() -> None:
    assert declared_sizes("embed", [EMBED]) == "batch = 1, seq = 32; batch = 8, seq = 64"
    assert declared_sizes("image", [EMBED, IMAGE]) == "batch = 1; batch = 2"
    assert declared_sizes("unknown", [EMBED]) == ""
    line = toml_lines(Call("embed", {"batch": 3, "seq": 16}, False))
    assert line == 'in [[shapes]] "embed" add { batch = 3, seq = 16 } to sizes'
