"""What of a declaration differs: each field in its own spelling, and what it costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prewarm.registry.declaration_file import read_declaration
from prewarm.registry.declared import compare_declared

TEXT = """\
[model]
match = "v*"
loader = "python"
factory = "net:build"
kwargs = { width = 4, deep = { layers = 2 } }
dtype = "float32"
device = "cpu"
[compile]
mode = ["default", "max-autotune"]
dynamic = false
config = { max_autotune = false }
[[shapes]]
name = "rows"
inputs.x = { dtype = "float32", shape = ["batch", 8], high = 3 }
kwargs = { flag = true }
sizes = { batch = [1, 4] }
[[shapes]]
name = "one"
args = [{ dtype = "float32", shape = [2, 8] }]
"""


@pytest.fixture
def recorded(tmp_path: Path):
    def read(text: str) -> dict[str, Any]:
        file = tmp_path / "prewarm.toml"
        file.write_text(text)
        # As it comes back from a manifest.
        plain: dict[str, Any] = json.loads(json.dumps(read_declaration(file).recorded()))
        return plain

    return read


@pytest.mark.parametrize(
    ("old", "new", "fact", "values", "cost"),
    [
        ('"float32"\ndevice', '"float16"\ndevice', "[model] dtype", ("float32", "float16"), "full"),
        ("width = 4", "width = 5", "[model] kwargs.width", ("4", "5"), "full"),
        ("layers = 2", "layers = 3", "[model] kwargs.deep.layers", ("2", "3"), "full"),
        ("width = 4, ", "", "[model] kwargs.width", ("4", None), "full"),
        ("net:build", "net:other", "[model] factory", ("net:build", "net:other"), "full"),
        ('device = "cpu"', 'device = "cuda"', "[model] device", ("cpu", "cuda"), "refused"),
        ('device = "cpu"', 'device = "cpu"\nthreads = 3', "[model] threads", ("0", "3"), "thread"),
        ('device = "cpu"', 'device = "cpu"\nsetup = "a:b"', "[model] setup", ("", "a:b"), "full"),
        ("dynamic = false", "dynamic = true", "[compile] dynamic", ("false", "true"), "full"),
        ("dynamic = false", 'dynamic = "auto"', "[compile] dynamic", ("false", "auto"), "full"),
        (
            "dynamic = false", "dynamic = false\nfullgraph = true", "[compile] fullgraph",
            ("false", "true"), "full",
        ),
        (
            "dynamic = false", 'dynamic = false\ntargets = ["forward"]', "[compile] targets",
            ('["."]', '["forward"]'), "full",
        ),
        (
            "max_autotune = false", "max_autotune = true", "[compile] config.max_autotune",
            ("false", "true"), "full",
        ),
        (
            "max_autotune = false", "max_autotune = 0", "[compile] config.max_autotune",
            ("false", "0"), "full",
        ),
        (
            '["default", "max-autotune"]', '["max-autotune"]', "[compile] mode",
            ("default", "max-autotune"), "full",
        ),
        (
            'x = { dtype = "float32"', 'x = { dtype = "float64"', "[[shapes]] rows inputs.x.dtype",
            ("float32", "float64"), "for the calls of rows",
        ),
        (
            '["batch", 8]', '["batch", 9]', "[[shapes]] rows inputs.x.shape",
            ('["batch", 8]', '["batch", 9]'), "for the calls of rows",
        ),
        ("high = 3", "high = 4", "[[shapes]] rows inputs.x.high", ("3", "4"), "values steer"),
        (
            "[2, 8]", "[3, 8]", "[[shapes]] one args.0.shape",
            ("[2, 8]", "[3, 8]"), "for the calls of one",
        ),
        (
            "flag = true", "flag = false", "[[shapes]] rows kwargs.flag",
            ("true", "false"), "for the calls of rows",
        ),
        (
            "[1, 4]", "[1, 4, 16]", "[[shapes]] rows sizes",
            ("batch = 1; batch = 4", "batch = 1; batch = 4; batch = 16"),
            "for the sizes that are new: batch = 16",
        ),
        (
            "[1, 4]", "[4]", "[[shapes]] rows sizes",
            ("batch = 1; batch = 4", "batch = 4"), "gone: batch = 1",
        ),
        (
            "[1, 4]", "[4, 1]", "[[shapes]] rows sizes",
            ("batch = 1; batch = 4", "batch = 4; batch = 1"), "order is part of what was proven",
        ),
        (
            '\n[[shapes]]\nname = "one"\nargs = [{ dtype = "float32", shape = [2, 8] }]\n', "\n",
            "[[shapes]] one", ("1 call", None), "none for the shape sets that are left",
        ),
        (
            '[[shapes]]\nname = "one"\n',
            '[[shapes]]\nname = "new"\nargs = [{ dtype = "bool", shape = [2] }]\n'
            '[[shapes]]\nname = "one"\n',
            "[[shapes]] new", (None, "1 call"), "a compile for its 1 call",
        ),
    ],
)  # fmt: skip
def test_one_edit_is_one_field_in_its_own_spelling(
    recorded: Any, old: str, new: str, fact: str, values: tuple[str | None, ...], cost: str
) -> None:
    assert TEXT.count(old) == 1

    [found] = compare_declared(recorded(TEXT), recorded(TEXT.replace(old, new)))

    assert found.fact == fact
    assert (found.recorded, found.present) == values
    assert cost in found.cost


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('match = "v*"', 'match = "*"'),
        ('["default", "max-autotune"]', '["default"]'),
        ('name = "rows"', 'name = "lines"'),
        ("{ batch = [1, 4] }", "[{ batch = 1 }, { batch = 4 }]"),
        ("dynamic = false", "dynamic = false\ntimeout_s = 5"),
        ('"batch", 8], high = 3 }\nkwargs = { flag = true }\nsizes = { batch',
         '"b", 8], high = 3 }\nkwargs = { flag = true }\nsizes = { b'),
    ],
)  # fmt: skip
def test_what_only_words_differ_in_is_no_difference(recorded: Any, old: str, new: str) -> None:
    assert TEXT.count(old) == 1

    assert compare_declared(recorded(TEXT), recorded(TEXT.replace(old, new))) == ()


def test_a_renamed_shape_set_is_told_only_for_what_else_changed(recorded: Any) -> None:
    text = TEXT.replace('name = "one"', 'name = "two"').replace("width = 4", "width = 5")

    assert [found.fact for found in compare_declared(recorded(TEXT), recorded(text))] == [
        "[model] kwargs.width"
    ]


def test_another_order_of_the_shape_sets_is_told(recorded: Any) -> None:
    head, first, second = TEXT.split("[[shapes]]\n")
    text = f"{head}[[shapes]]\n{second}[[shapes]]\n{first}"

    [found] = compare_declared(recorded(TEXT), recorded(text))

    assert (found.fact, found.recorded, found.present) == (
        "[[shapes]] order", "rows, one", "one, rows",
    )  # fmt: skip


def test_a_path_that_no_record_holds_is_a_difference_all_the_same(recorded: Any) -> None:
    one, other = recorded(TEXT), recorded(TEXT)
    other["key"] = "0" * 64

    [found] = compare_declared(one, other)

    assert found.fact == "prewarm.toml"


def test_the_sentence_says_what_stands_in_the_file_now(recorded: Any) -> None:
    text = TEXT.replace('dtype = "float32"\ndevice', 'dtype = "float16"\ndevice')
    [found] = compare_declared(recorded(TEXT), recorded(text))
    [gone] = compare_declared(recorded(TEXT), recorded(TEXT.replace("width = 4, ", "")))
    [added] = compare_declared(recorded(TEXT.replace("width = 4, ", "")), recorded(TEXT))

    assert found.sentence() == (
        "[model] dtype is float16 in prewarm.toml now, the bundle was built with float32"
    )
    assert gone.sentence() == (
        "[model] kwargs.width is not stated in prewarm.toml now, the bundle was built with 4"
    )
    assert added.sentence().endswith("kwargs.width is 4 in prewarm.toml now, the bundle was built "
                                     "without it")  # fmt: skip
