"""What deployments compile and nobody declared becomes lines that a declaration takes as is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prewarm.deploy.missing_calls import MOST_ROWS, Missing, missing_calls
from prewarm.registry.declaration import Declaration
from prewarm.registry.declaration_file import read_declaration
from prewarm.store.manifest import canonical_json

DECLARATION = """\
[model]
loader = "python"
factory = "own:build"
device = "cpu"
[compile]
dynamic = false
[[shapes]]
name = "chat"
inputs.input_ids = { dtype = "int64", shape = ["batch", "seq"], high = 30000 }
inputs.attention_mask = { dtype = "int64", shape = ["batch", "seq"], fill = 1 }
kwargs = { return_dict = true, "odd key" = "$seq" }
sizes = { batch = [1, 8], seq = [128] }
[[shapes]]
name = "pair"
args = [[{ dtype = "float32", shape = ["n", 4] }, { right = { dtype = "float32", shape = [4] } }]]
dynamic_dims = ["n"]
sizes = [{ n = 3 }]
"""


def declared(tmp_path: Path, text: str = DECLARATION) -> Declaration:
    (tmp_path / "prewarm.toml").write_text(text)
    return read_declaration(tmp_path / "prewarm.toml")


def tensor(name: str, *shape: int, dtype: str = "int64") -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": list(shape)}


def chat(batch: int, seq: int) -> list[dict[str, Any]]:
    return [tensor(name, batch, seq) for name in ("input_ids", "attention_mask")]


def found(tmp_path: Path, *starts: list[list[dict[str, Any]]]) -> tuple[Missing, ...]:
    return missing_calls(starts, declared(tmp_path).recorded())


def added(tmp_path: Path, *lines: str) -> Declaration:
    """Return the declaration with the lines at its end, as a person would add them."""
    return declared(tmp_path, DECLARATION + "".join(f"\n{one}\n" for one in lines))


def test_a_size_that_starts_compile_is_declared_by_the_lines(tmp_path: Path) -> None:
    [one] = found(tmp_path, [chat(3, 64)], [chat(1, 128)], [chat(3, 64), chat(2, 7)])

    assert (one.like, one.starts) == ("chat", 2)
    assert one.sizes == ({"batch": 3, "seq": 64}, {"batch": 2, "seq": 7})
    before, after = declared(tmp_path), added(tmp_path, one.toml)
    assert after.shapes[:2] == before.shapes
    assert after.shapes[2].name == "chat-2"
    assert after.shapes[2].calls() == one.sizes
    # The new one is the old one in all but name and sizes.
    old, new = before.shapes[0].to_dict(), after.shapes[2].to_dict()
    assert {**new, "name": "chat", "sizes": old["sizes"]} == old


def test_once_it_is_declared_nothing_is_missing(tmp_path: Path) -> None:
    starts = [[chat(3, 64)]]
    [one] = found(tmp_path, *starts)

    assert missing_calls(starts, added(tmp_path, one.toml).recorded()) == ()


def test_positional_and_nested_inputs_are_kept(tmp_path: Path) -> None:
    inputs = [tensor("?", 9, 4, dtype="float32"), tensor("?", 4, dtype="float32")]
    [one] = found(tmp_path, [inputs])

    shape_set = added(tmp_path, one.toml).shapes[2]
    assert (one.like, one.sizes) == ("pair", ({"n": 9},))
    assert shape_set.dynamic_dims == ("n",)
    assert shape_set.to_dict()["args"] == declared(tmp_path).shapes[1].to_dict()["args"]


def test_a_call_like_no_shape_set_is_written_as_it_came(tmp_path: Path) -> None:
    image = [tensor("image", 1, 3, 8, 8, dtype="float16")]
    [one] = found(tmp_path, [image], [image])

    assert (one.like, one.sizes, one.starts) == (None, (), 2)
    shape_set = added(tmp_path, one.toml).shapes[2]
    assert shape_set.calls() == ({},)
    spec = shape_set.to_dict()["inputs"]["image"]
    assert (spec["dtype"], spec["shape"]) == ("float16", [1, 3, 8, 8])


@pytest.mark.parametrize("name", ["?", "L['self'].x", "a.b", "args.0"])
def test_inputs_that_no_declaration_can_name_are_left_out(tmp_path: Path, name: str) -> None:
    assert found(tmp_path, [[tensor(name, 1, 2, 3)]]) == ()


def test_where_a_part_of_the_module_is_compiled_a_new_shape_set_is_not_guessed(
    tmp_path: Path,
) -> None:
    recorded = declared(tmp_path).recorded()
    recorded["compile"]["targets"] = ["encoder"]
    assert missing_calls([[[tensor("x", 1, 2, 3)]]], recorded) == ()


@pytest.mark.parametrize("recorded", [None, {}, {"shapes": None}, {"shapes": ["a"]}, 3])
def test_without_a_declaration_nothing_is_told(recorded: Any) -> None:
    assert missing_calls([[chat(3, 64)]], recorded) == ()


def test_two_added_shape_sets_have_names_of_their_own(tmp_path: Path) -> None:
    text = DECLARATION.replace('"pair"', '"chat-2"')
    starts = [[chat(3, 64)], [[tensor("image", 2)]], [[tensor("image", 3)]]]
    lines = [one.toml for one in missing_calls(starts, declared(tmp_path, text).recorded())]

    after = declared(tmp_path, text + "".join(f"\n{one}\n" for one in lines))
    names = [shape_set.name for shape_set in after.shapes]
    assert names == ["chat", "chat-2", "chat-3", "found-2", "found-3"]


def test_rows_are_bounded(tmp_path: Path) -> None:
    [one] = found(tmp_path, [chat(2, seq) for seq in range(1, 100)])
    assert len(one.sizes) == MOST_ROWS


def test_inputs_keep_their_declared_order_in_a_record_from_a_manifest(tmp_path: Path) -> None:
    signed = json.loads(canonical_json(declared(tmp_path).recorded()))
    [one] = missing_calls([[chat(3, 64)]], signed)

    inputs = [line.split()[0] for line in one.toml.splitlines() if line.startswith("inputs.")]
    assert inputs == ["inputs.input_ids", "inputs.attention_mask"]
