from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path

import pytest

from prewarm.errors import ConfigError
from prewarm.registry.declaration import Call, Declaration, DeclarationTables
from prewarm.registry.declaration_file import read_declaration

#: The whole sample of the documentation.
SAMPLE = """
[registry]                         # only at the root
exclude = ["**/optimizer*"]
keep = "latest:3"                  # newest three versions per model; default: all

[model]
match = "*"                        # default: the file's own directory
loader = "transformers"            # transformers | diffusers | torch | export | python | command
class = "AutoModelForCausalLM"     # transformers, diffusers
kwargs = {}                        # of the class or factory
setup = ""                         # "pkg.mod:fn", model -> model: LoRA, quantisation, fusing
dtype = "bfloat16"
device = "cuda"                    # cuda | cpu
grad = "inference"                 # inference | no_grad | grad (then `loss = "sum"`)
requires_grad = true               # false where the server freezes its parameters
autocast = ""                      # e.g. "float16", around the call
memory_format = ""                 # e.g. "channels_last"
threads = 0                        # CPU: the deployment's thread count; 0: the machine's
weights = "load"                   # load | random
interpreter = []                   # argv of the deployment's python

[compile]
targets = ["."]
mode = ["max-autotune", "max-autotune-no-cudagraphs", "default"]
dynamic = false                    # must be stated: false | true | "auto"
fullgraph = false
regional = false                   # the repeated blocks instead of the whole
config = {}                        # inductor settings, applied on both sides
timeout_s = 3600

[[shapes]]
name = "chat"
call = "."                         # "." the module itself; "generate", "encode", …
inputs.input_ids = { dtype = "int64", shape = ["batch", "seq"], high = 30000 }
inputs.attention_mask = { dtype = "int64", shape = ["batch", "seq"], fill = 1 }
kwargs = {}                        # plain values; "$batch" takes a size
steps = 0                          # generate: stop after so many tokens
dynamic_dims = []                  # marked dynamic on both sides
sizes = { batch = [1, 8], seq = [128, 512] }    # a grid, or a list of tables, in call order
"""

COMMAND = """
[model]
loader = "command"
command = ["python", "serve.py", "--model", "{checkpoint}", "--port", "{port}"]
ready = "http://127.0.0.1:{port}/health"
processes = 1
cache_variables = ["TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "VLLM_CACHE_ROOT"]
[[shapes]]
name = "chat"
requests = [{ post = "/v1/completions", json = { prompt = "hi", max_tokens = 8 } }]
"""


def declared(text: str, file: str = "prewarm.toml") -> Declaration:
    return Declaration.from_tables(
        DeclarationTables.model_validate(tomllib.loads(text)), Path(file)
    )


def test_the_documented_sample_is_read():
    declaration = declared(SAMPLE)
    assert declaration.calls() == tuple(
        Call("chat", {"batch": batch, "seq": seq}) for batch in (1, 8) for seq in (128, 512)
    )
    assert declaration.timeout_s == 3600
    assert declaration.interpreter == ()
    assert declaration.registry.exclude == ("**/optimizer*",)


def test_the_documented_command_is_read_and_told_as_not_built_yet():
    declaration = declared(COMMAND)
    assert declaration.model.command[0] == "python"
    assert [line for line in declaration.not_yet() if 'loader = "command"' in line]


def test_defaults_are_the_documented_ones(minilm):
    declaration = declared(minilm)
    assert declaration.compile.mode == (
        "max-autotune", "max-autotune-no-cudagraphs", "default",
    )  # fmt: skip
    request = declaration.request()
    assert request["compile"]["targets"] == [{"at": ".", "fullgraph": False, "regional": False}]
    assert request["model"]["grad"] == "inference"
    assert request["model"]["requires_grad"] is True
    assert request["model"]["weights"] == "load"
    assert request["model"]["threads"] == 0
    shapes = request["shapes"][0]
    assert shapes["call"] == "."
    assert (shapes["args"], shapes["kwargs"], shapes["steps"]) == ([], {}, 0)
    assert shapes["sizes"] == [{"batch": 1, "seq": 32}, {"batch": 8, "seq": 64}]


def test_device_and_dtype_have_defaults(python_model):
    text = python_model.replace('device = "cpu"\n', "")
    assert declared(text).model.device == "cuda"
    assert declared(text).model.dtype == ""


def test_request_is_plain_json(minilm):
    request = declared(minilm).request()
    assert json.loads(json.dumps(request)) == request


def test_a_shape_set_without_sizes_is_one_call(python_model):
    assert declared(python_model).request()["shapes"][0]["sizes"] == [{}]
    assert declared(python_model).calls() == (Call("x", {}),)


def test_a_single_mode_is_accepted(minilm):
    text = minilm.replace("dynamic = false", 'dynamic = false\nmode = "default"')
    assert declared(text).compile.mode == ("default",)


def test_targets_follow_the_table_unless_they_state_otherwise(minilm):
    text = minilm.replace(
        "dynamic = false",
        'dynamic = false\nfullgraph = true\ntargets = ["a.0", { at = "b", fullgraph = false }]',
    )
    assert declared(text).request()["compile"]["targets"] == [
        {"at": "a.0", "fullgraph": True, "regional": False},
        {"at": "b", "fullgraph": False, "regional": False},
    ]


def test_path_is_absolute_and_beside_the_file(registry, python_model):
    registry.write("m/src/net.py", "x = 1")
    file = registry.write(
        "m/prewarm.toml", python_model.replace("[model]", '[model]\npath = ["src"]')
    )
    assert read_declaration(file).request()["model"]["path"] == [str(registry.root / "m/src")]


def test_path_that_does_not_exist_is_told(registry, python_model):
    file = registry.write(
        "m/prewarm.toml", python_model.replace("[model]", '[model]\npath = ["scr"]')
    )
    with pytest.raises(ConfigError, match=r"prewarm\.toml: \[model\] path: 'scr' is no directory"):
        read_declaration(file).request()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('match = "minilm/*"', 'match = "other/**"'),
        ('name = "embed"', 'name = "other"'),
        ("[model]", '[model]\ninterpreter = ["python3"]'),
        ("[model]", '[model]\nweights = "random"'),
        ("dynamic = false", 'dynamic = false\nmode = ["max-autotune", "default"]'),
        ("dynamic = false", "dynamic = false\ntimeout_s = 10"),
        ("seq", "length"),
    ],
)
def test_build_key_leaves_out_what_shapes_no_graph(minilm, old, new):
    assert declared(minilm.replace(old, new)).key_facts() == declared(minilm).key_facts()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('class = "AutoModel"', 'class = "AutoModelForMaskedLM"'),
        ('dtype = "float32"', 'dtype = "bfloat16"'),
        ('device = "cpu"', 'device = "cuda"'),
        ("[model]", '[model]\ngrad = "no_grad"'),
        ("[model]", "[model]\nrequires_grad = false"),
        ("[model]", '[model]\nautocast = "bfloat16"'),
        ("[model]", '[model]\nmemory_format = "channels_last"'),
        ("[model]", "[model]\nthreads = 4"),
        ("[model]", '[model]\nsetup = "a.b:c"'),
        ("[model]", "[model]\nkwargs = { x = 1 }"),
        ("dynamic = false", "dynamic = true"),
        ("dynamic = false", "dynamic = false\nfullgraph = true"),
        ("dynamic = false", 'dynamic = false\nmode = ["default"]'),
        ("dynamic = false", 'dynamic = false\ntargets = ["forward"]'),
        ("dynamic = false", "dynamic = false\nconfig = { freezing = true }"),
        ("batch = 8", "batch = 4"),
        ("[[shapes]]", '[[shapes]]\ndynamic_dims = ["batch"]'),
        (
            "[{ batch = 1, seq = 32 }, { batch = 8, seq = 64 }]",
            "[{ batch = 8, seq = 64 }, { batch = 1, seq = 32 }]",
        ),
    ],
)
def test_build_key_has_what_shapes_the_graph(minilm, old, new):
    assert old in minilm
    assert declared(minilm.replace(old, new)).key_facts() != declared(minilm).key_facts()


def test_a_size_in_kwargs_is_placed_in_the_key(python_model):
    text = (
        python_model
        + 'kwargs = { n = "$n", label = "$", plain = ["shape"] }\nsizes = { n = [3, 5] }'
    )
    calls = declared(text).key_facts()["shapes"][0]["calls"]
    assert [call["kwargs"]["n"] for call in calls] == [3, 5]
    assert calls[0]["kwargs"]["label"] == "$"
    assert declared(text).request()["shapes"][0]["kwargs"]["n"] == "$n"


def test_what_a_later_version_does_is_said_in_one_line_each(minilm):
    text = minilm.replace("dynamic = false", "dynamic = false\nregional = true").replace(
        "[[shapes]]", "[[shapes]]\nsteps = 4"
    )
    later = declared(text).not_yet()
    assert len(later) == 2
    assert not any("\n" in line for line in later)
    assert declared(minilm).not_yet() == ()


def test_a_declaration_cannot_be_changed(minilm):
    declaration = declared(minilm)
    with pytest.raises(AttributeError):
        declaration.file = Path("x")
    before = copy.deepcopy(declaration.key_facts())
    declaration.request()
    assert declaration.key_facts() == before
