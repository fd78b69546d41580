from __future__ import annotations

import re

import pytest

from prewarm.errors import ConfigError
from prewarm.registry.declaration_file import MAX_SIZE_BYTES, read_declaration

LINE = r"prewarm\.toml:\d+: "


def told(registry, text: str | bytes) -> str:
    file = registry.write("prewarm.toml", text)
    with pytest.raises(ConfigError) as error:
        read_declaration(file)
    message = str(error.value)
    assert "\n" not in message
    assert "pydantic" not in message
    assert "Input should" not in message
    return message


def test_five_lines_of_the_readme_are_enough(registry, minilm):
    declaration = read_declaration(registry.write("prewarm.toml", minilm))
    assert declaration.label == "prewarm.toml"
    assert declaration.file == registry.root / "prewarm.toml"


@pytest.mark.parametrize(
    ("old", "new", "line", "expected"),
    [
        ("dynamic", "dynmaic", 9, "[compile] dynmaic: unknown key; did you mean `dynamic`?"),
        ("loader", "loadr", 4, "[model] loadr: unknown key; did you mean `loader`?"),
        ("[compile]", "[complie]", 8, "complie: unknown key; did you mean `compile`?"),
        ("fill = 1", "fil = 1", 13, "embed inputs.attention_mask.fil: unknown key; did you mean"),
        (
            "[model]",
            "[model]\nmode = 'default'",
            3,
            "[model] mode: unknown key; it belongs to [compile]",
        ),
        ("[model]", "[model]\ntimeout_s = 3", 3, "timeout_s: unknown key; it belongs to [compile]"),
    ],
)
def test_unknown_key_names_line_and_nearest(registry, minilm, old, new, line, expected):
    message = told(registry, minilm.replace(old, new, 1))
    assert f"prewarm.toml:{line}: " in message
    assert expected in message


def test_misspelt_key_is_not_told_again_as_missing(registry, minilm):
    assert "not stated" not in told(registry, minilm.replace("dynamic", "dynmaic"))


def test_dynamic_not_stated(registry, minilm):
    assert told(registry, minilm.replace("dynamic = false\n", "")) == (
        "prewarm.toml:8: [compile] dynamic is not stated; "
        'write dynamic = false (fixed sizes), true or "auto"'
    )


@pytest.mark.parametrize("value", ['"yes"', "1", "0", "[]"])
def test_dynamic_of_another_kind(registry, minilm, value):
    message = told(registry, minilm.replace("dynamic = false", f"dynamic = {value}"))
    assert "[compile] dynamic is " in message
    assert 'expected false (fixed sizes), true or "auto"' in message


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"cpu"', '"cuda:0"', '[model] device is "cuda:0"; write "cuda" (the deployment picks'),
        ('"cpu"', '"gpu"', '[model] device is "gpu"; did you mean "cuda"?'),
        ('"cpu"', '"tpu"', "[model] device is"),
        (
            '"float32"',
            '"torch.float32"',
            '[model] dtype is "torch.float32"; did you mean "float32"?',
        ),
        ('"float32"', '"fp16"', '[model] dtype is "fp16"; did you mean "float16"?'),
        ('"float32"', "32", "[model] dtype is 32, expected one of"),
        ("[model]", '[model]\nthreads = "4"', '[model] threads is "4", expected a whole number'),
        ("[model]", "[model]\nthreads = -1", "[model] threads is -1, expected 0 or more"),
        (
            "[model]",
            '[model]\nrequires_grad = "no"',
            'requires_grad is "no", expected true or false',
        ),
        ("[model]", "[model]\npath = 'src'", '[model] path is "src", expected a list'),
        ("[model]", "[model]\ninterpreter = [1]", "[model] interpreter[0] is 1, expected a string"),
        ("[model]", "[model]\nkwargs = 3", "[model] kwargs is 3, expected a table"),
        (
            "[model]",
            "[model]\nkwargs = { day = 2024-01-01 }",
            "kwargs.day is a date, expected a plain",
        ),
        ("[model]", "[model]\nkwargs = { x = nan }", "kwargs.x is nan, expected a finite number"),
        (
            "[model]",
            '[model]\nfactory = "a:b"',
            'factory belongs to loader "torch" or "python", but',
        ),
        (
            "[model]",
            '[model]\nsetup = "a.b.c"',
            "setup is 'a.b.c', expected \"package.module:function\"",
        ),
        (
            "[model]",
            '[model]\ngrad = "grad"',
            '[model] loss is not stated for grad = "grad"; write',
        ),
        ("[model]", '[model]\nloss = "sum"', '[model] loss needs grad = "grad"'),
        ("[model]", '[model]\ngrad = "grad"\nloss = "mean"', "loss is 'mean', expected \"sum\" or"),
        ('class = "AutoModel"', "", '[model] class is not stated for loader "transformers"; write'),
        ('"transformers"', '"torch"', '[model] factory is not stated for loader "torch"; write'),
        ('loader = "transformers"', "", "[model] loader is not stated; write loader"),
        ('"minilm/*"', '"../x"', "[model] match is '../x', expected a glob"),
        (
            "dynamic = false",
            "dynamic = false\nmode = []",
            "[compile] mode is [], expected at least",
        ),
        (
            "dynamic = false",
            'dynamic = false\nmode = "max-autotun"',
            'did you mean "max-autotune"?',
        ),
        (
            "dynamic = false",
            'dynamic = false\nmode = ["default", "default"]',
            "for the second time",
        ),
        (
            "dynamic = false",
            "dynamic = false\ntargets = [{ fullgraph = true }]",
            "targets[0].at is not",
        ),
        (
            "dynamic = false",
            "dynamic = false\ntargets = ['a b']",
            "targets[0].at is 'a b', expected",
        ),
        (
            "dynamic = false",
            "dynamic = false\ntimeout_s = 0",
            "timeout_s is 0, expected more than 0",
        ),
        (
            "dynamic = false",
            "dynamic = false\ntimeout_s = inf",
            "timeout_s is inf, expected a finite",
        ),
        ('name = "embed"', "", "[[shapes]] 1 name is not stated"),
        ('name = "embed"', 'name = "a b"', "name is 'a b', expected letters, digits"),
        ('"int64"', '"int46"', 'inputs.input_ids.dtype is "int46"; did you mean "int64"?'),
        ('"int64"', '"torch.int64"', 'did you mean "int64"?'),
        ("high = 30000", "high = 0", "inputs.input_ids.high is 0, expected more than low, 0"),
        ("high = 30000", "high = 1.5", "high is 1.5, expected a whole number for dtype"),
        ("high = 30000", "high = 3, fill = 1", "fill is stated beside `high` or `low`"),
        ("high = 30000", "high = 'x'", "inputs.input_ids.high is 'x', expected a number"),
        (
            '["batch", "seq"], high',
            '["batch", -1], high',
            "shape[1] is -1, expected a whole number",
        ),
        (
            '["batch", "seq"], high',
            '["$batch", "seq"], high',
            'expected a name of `sizes`; write "batch"',
        ),
        ('["batch", "seq"], high', "3, high", "inputs.input_ids.shape is 3, expected a list"),
        (', shape = ["batch", "seq"], high = 30000', "", "inputs.input_ids.shape is not stated"),
        (
            "inputs.input_ids = {",
            "inputs.x = 3\ninputs.input_ids = {",
            "inputs.x is 3, expected a tensor",
        ),
        ("batch = 1", "batch = '1'", "sizes[0].batch is '1', expected a whole number"),
        ("batch = 1", "batch = true", "sizes[0].batch is True, expected a whole number"),
        (
            "batch = 8, seq",
            "batch = 8, sek",
            "sizes[1] binds batch, sek, but the first binds batch, seq",
        ),
        ("{ batch = 8, seq = 64 }", "{ batch = 1, seq = 32 }", "stands twice; remove one"),
        ("{ batch = 8, seq = 64 }", "8", "sizes[1] is 8, expected a table"),
        (
            "[{ batch = 1, seq = 32 }, { batch = 8, seq = 64 }]",
            "[]",
            "sizes is [], expected at least",
        ),
        (
            "[{ batch = 1, seq = 32 }, { batch = 8, seq = 64 }]",
            "{ batch = [], seq = 1 }",
            "is [], expected",
        ),
        ("[{ batch = 1, seq = 32 }, { batch = 8, seq = 64 }]", "3", "sizes is 3, expected a grid"),
    ],
)
def test_each_slip_is_one_plain_line(registry, minilm, old, new, expected):
    assert old in minilm
    message = told(registry, minilm.replace(old, new, 1))
    assert re.match(LINE, message)
    assert expected in message


def test_a_name_that_no_size_binds(registry, minilm):
    message = told(registry, minilm.replace('["batch", "seq"], high', '["batch", "sek"], high'))
    assert message == (
        'prewarm.toml:12: [[shapes]] embed inputs.input_ids.shape "sek" is bound by no `sizes`; '
        "`sizes` binds batch, seq"
    )


def test_a_kwarg_that_no_size_binds(registry, python_model):
    message = told(registry, python_model + 'kwargs = { a = { n = "$n" } }')
    assert (
        '[[shapes]] x kwargs.a.n "$n" is bound by no `sizes`; write sizes = { n = [1] }' in message
    )


def test_a_size_that_nothing_uses(registry, minilm):
    message = told(
        registry,
        minilm.replace("seq = 32", "seq = 32, sek = 1").replace("seq = 64", "seq = 64, sek = 1"),
    )
    assert '[[shapes]] embed sizes "sek" is used by no input, args or kwargs' in message


def test_all_issues_at_once_in_the_order_of_the_file(registry, minilm):
    text = minilm.replace('"cpu"', '"gpu"').replace("dynamic", "dynmaic").replace("fill", "fil")
    message = told(registry, text)
    assert [int(line) for line in re.findall(r"prewarm\.toml:(\d+):", message)] == [6, 9, 13]


def test_countless_issues_stay_one_readable_line(registry, minilm):
    keys = "\n".join(f"key_{number} = 1" for number in range(500))
    message = told(registry, minilm.replace("[model]", f"[model]\n{keys}"))
    assert message.endswith("and 488 more")
    assert len(message) < 6000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[model\nloader = 1", "prewarm.toml:1: not valid TOML: expected ']'"),
        ("[model]\nloader = \n", "prewarm.toml:2: not valid TOML: invalid value"),
        ("[model]\na = 1\na = 2\n", "prewarm.toml:3: not valid TOML: cannot overwrite a value"),
        ("[model]\nloader = 'x", "prewarm.toml:2: not valid TOML"),
        (b"[model]\nloader = '\xff'\n", "prewarm.toml:2: not UTF-8"),
        ("a = " + "[" * 100_000, "not valid TOML"),
        ("# " + "x" * MAX_SIZE_BYTES, "over 1,048,576 bytes"),
        ("", "[model] is missing; write [model] with a loader"),
        ("[registry]\nexclude = []", "[model] is missing"),
        (
            "[model]\nloader='python'\nfactory='a:b'",
            "[compile] is missing; write [compile] with dynamic",
        ),
        ("model = 3", "[model] is 3, expected a table"),
        ("shapes = 3\n[model]\nloader='python'\nfactory='a:b'", "[[shapes]] is 3, expected a list"),
    ],
)
def test_a_file_that_is_no_declaration(registry, text, expected):
    assert expected in told(registry, text)


def test_registry_table_below_the_root_is_told(registry, minilm):
    file = registry.write("a/prewarm.toml", "[registry]\nkeep = 'all'\n" + minilm)
    with pytest.raises(ConfigError, match=r"^a/prewarm\.toml:1: \[registry\] belongs to the reg"):
        read_declaration(file, root=registry.root)


def test_the_label_is_relative_to_the_registry(registry):
    file = registry.write("a/b/prewarm.toml", "[")
    with pytest.raises(ConfigError, match=r"^a/b/prewarm\.toml:1: "):
        read_declaration(file, root=registry.root)


def test_a_missing_file_says_how_to_write_one(registry):
    with pytest.raises(ConfigError, match="no such file; `prewarm init` writes a first one"):
        read_declaration(registry.root / "prewarm.toml")


def test_a_directory_under_this_name_is_told(registry):
    (registry.root / "prewarm.toml").mkdir()
    with pytest.raises(ConfigError, match=r"prewarm\.toml: cannot be read \(Is a directory\)"):
        read_declaration(registry.root / "prewarm.toml")


def test_nested_inputs_keep_their_places(registry, python_model):
    text = python_model.replace(
        "args = [", "inputs.past = [{ key = { dtype = 'int64', shape = ['n'] } }]\nargs = ["
    )
    assert 'x inputs.past[0].key.shape "n" is bound by no' in told(registry, text)
    declaration = read_declaration(registry.write("prewarm.toml", text + "sizes = { n = 2 }"))
    (past,) = declaration.request()["shapes"][0]["inputs"]["past"]
    assert past["key"]["shape"] == ["n"]
