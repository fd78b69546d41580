from __future__ import annotations

import json
import os
import pickle
import shutil
import zipfile

import pytest

from prewarm.errors import RegistryError
from prewarm.registry.architecture import architecture_digest


def digests(registry) -> dict[str, str]:
    return {
        one.checkpoint.name: architecture_digest(one.checkpoint, one.declaration)
        for one in registry.scan()
        if one.declaration
    }


def test_other_weights_are_the_same_architecture(registry, minilm):
    registry.write("prewarm.toml", minilm)
    registry.bert("minilm/v1", fill=1)
    registry.bert("minilm/v2", fill=2)
    found = digests(registry)
    assert found["minilm/v1"] == found["minilm/v2"]
    assert len(found["minilm/v1"]) == 64


def test_neither_place_nor_time_counts(registry, python_model, tmp_path):
    text = python_model.replace("[model]", '[model]\npath = ["src"]')
    registry.write("a/prewarm.toml", text)
    registry.write("a/src/net.py", "x = 1")
    registry.write("a/model.bin", b"")
    first = digests(registry)["a"]
    shutil.copytree(registry.root / "a", registry.root / "moved/deeper", symlinks=True)
    shutil.rmtree(registry.root / "a")
    os.utime(registry.root / "moved/deeper/src/net.py", (1, 1))
    assert digests(registry) == {"moved/deeper": first}


@pytest.mark.parametrize(
    ("key", "value", "differs"),
    [
        ("hidden_size", 8, True),
        ("hidden_act", "relu", True),
        ("architectures", ["BertForMaskedLM"], True),
        ("torch_dtype", "bfloat16", True),
        ("pad_token_id", 3, True),
        ("_name_or_path", "elsewhere", False),
        ("transformers_version", "9", False),
        ("id2label", {"0": "good"}, False),
        ("text_config", {"transformers_version": "9"}, None),
    ],
)
def test_configuration_keys(registry, minilm, key, value, differs):
    registry.write("prewarm.toml", minilm)
    registry.bert("minilm/v1")
    path = registry.bert("minilm/v2") / "config.json"
    config = json.loads(path.read_text())
    if differs is None:
        (registry.root / "minilm/v1/config.json").write_text(json.dumps({**config, key: {}}))
    path.write_text(json.dumps({key: value, **{k: v for k, v in config.items() if k != key}}))
    found = digests(registry)
    assert (found["minilm/v1"] != found["minilm/v2"]) is bool(differs)


def test_files_beside_the_model_do_not_count(registry, minilm):
    registry.write("prewarm.toml", minilm)
    registry.bert("minilm/v1")
    registry.bert("minilm/v2")
    registry.write("minilm/v2/tokenizer.json", '{"a": 1}')
    registry.write("minilm/v2/README.md", "x")
    registry.write("minilm/v2/training_args.bin", pickle.dumps(print))
    registry.write("minilm/v2/optimizer.pt", pickle.dumps(print))
    found = digests(registry)
    assert found["minilm/v1"] == found["minilm/v2"]


@pytest.mark.parametrize(
    "tensors",
    [
        {"w": ("F32", [4, 4]), "c": ("F32", [4])},
        {"w": ("F32", [4, 4]), "b": ("BF16", [4])},
        {"w": ("F32", [4, 4]), "b": ("F32", [5])},
        {"w": ("F32", [4, 4])},
    ],
)
def test_names_shapes_and_dtypes_of_tensors_count(registry, minilm, safetensors, tensors):
    registry.write("prewarm.toml", minilm)
    registry.bert("minilm/v1")
    registry.bert("minilm/v2")
    registry.write("minilm/v2/model.safetensors", safetensors(tensors))
    found = digests(registry)
    assert found["minilm/v1"] != found["minilm/v2"]


def test_shards_do_not_count(registry, minilm, safetensors):
    registry.write("prewarm.toml", minilm)
    registry.bert("minilm/v1")
    (registry.bert("minilm/v2") / "model.safetensors").unlink()
    names = {"w": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    registry.write(f"minilm/v2/{names['w']}", safetensors({"w": ("F32", [4, 4])}))
    registry.write(f"minilm/v2/{names['b']}", safetensors({"b": ("F32", [4])}))
    registry.write("minilm/v2/model.safetensors.index.json", json.dumps({"weight_map": names}))
    found = digests(registry)
    assert found["minilm/v1"] == found["minilm/v2"]


def test_source_counts(registry, python_model):
    """A custom operator that changed but not its name must not be served from the old graph."""
    registry.write("a/prewarm.toml", python_model.replace("[model]", '[model]\npath = ["src"]'))
    registry.write("a/model.bin", b"")
    registry.write("a/src/net.py", "x = 1")
    seen = {digests(registry)["a"]}
    for name in ("a/src/net.py", "a/src/pkg/op.py", "a/src/op.cu", "a/modeling.py"):
        registry.write(name, "x = 2")
        seen.add(digests(registry)["a"])
    registry.write("a/src/.hidden.py", "x")
    registry.write("a/src/__pycache__/net.pyc", "x")
    registry.write("a/src/notes.txt", "x")
    seen.add(digests(registry)["a"])
    assert len(seen) == 5


def test_models_that_land_beside_shared_source_do_not_count(registry, python_model):
    registry.write(
        "prewarm.toml", python_model.replace("[model]", '[model]\nmatch="*"\npath = ["."]')
    )
    registry.write("net.py", "x = 1")
    registry.write("a/model.bin", b"")
    first = digests(registry)["a"]
    registry.bert("other")
    registry.write("other/modeling.py", "x = 1")
    assert digests(registry)["a"] == first


def test_what_the_declaration_loads_counts(registry, minilm):
    registry.write("prewarm.toml", minilm)
    registry.bert("minilm/v1")
    first = digests(registry)["minilm/v1"]
    for old, new in (
        ("AutoModel", "BertModel"),
        ("[model]", "[model]\nkwargs = { x = 1 }"),
        ("[model]", '[model]\nsetup = "a:b"'),
    ):
        registry.write("prewarm.toml", minilm.replace(old, new))
        assert digests(registry)["minilm/v1"] != first
    registry.write("prewarm.toml", minilm.replace("batch = 8", "batch = 4"))
    assert digests(registry)["minilm/v1"] == first


def test_random_weights_are_not_read(registry, minilm, safetensors):
    registry.write("prewarm.toml", minilm.replace("[model]", '[model]\nweights = "random"'))
    registry.bert("minilm/v1")
    registry.bert("minilm/v2")
    registry.write("minilm/v2/model.safetensors", safetensors({"w": ("F32", [1])}))
    found = digests(registry)
    assert found["minilm/v1"] == found["minilm/v2"]


def test_a_state_dict_that_is_no_weights_only_file(registry, python_model):
    text = python_model.replace('"python"', '"torch"').replace(
        "[model]", '[model]\nstate_dict = "tiny.pth"'
    )
    registry.write("a/prewarm.toml", text)
    path = registry.root / "a/tiny.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", pickle.dumps({"w": print}))
    (found,) = registry.scan()
    with pytest.raises(RegistryError, match=r"^a: tiny\.pth: holds builtins\.print, so it is no"):
        architecture_digest(found.checkpoint, found.declaration)


def test_a_python_loader_may_load_what_it_likes(registry, python_model):
    registry.write("a/prewarm.toml", python_model)
    registry.write("a/model.pt", pickle.dumps(print))
    assert digests(registry)["a"]


def test_a_vanished_file_is_told(registry, minilm):
    registry.write("prewarm.toml", minilm)
    registry.bert("minilm/v1")
    (found,) = registry.scan()
    shutil.rmtree(registry.root / "minilm")
    with pytest.raises(RegistryError, match=r"minilm/v1: config\.json vanished") as error:
        architecture_digest(found.checkpoint, found.declaration)
    assert error.value.code == "changed"


@pytest.fixture
def export_model(python_model) -> str:
    return python_model.replace('"python"', '"export"').replace('factory = "net:make"', "")


def test_exported_programs(registry, export_model):
    torch = pytest.importorskip("torch")
    registry.write("prewarm.toml", export_model.replace("[model]", '[model]\nmatch = "*.pt2"'))

    def save(name: str, module) -> None:
        program = torch.export.export(module, (torch.ones(2, 3),))
        torch.export.save(program, registry.root / name)

    torch.manual_seed(0)
    save("a.pt2", torch.nn.Linear(3, 4))
    save("b.pt2", torch.nn.Linear(3, 4))
    save("c.pt2", torch.nn.Linear(3, 5))
    save("d.pt2", torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()))
    found = digests(registry)
    assert found["a.pt2"] == found["b.pt2"]
    assert len(set(found.values())) == 3


def test_a_file_that_is_no_exported_program(registry, export_model):
    registry.write("prewarm.toml", export_model.replace("[model]", '[model]\nmatch = "*"'))
    with zipfile.ZipFile(registry.root / "a.pt2", "w") as archive:
        archive.writestr("a/data.pkl", b"")
    (found,) = registry.scan()
    with pytest.raises(RegistryError, match=r"a\.pt2: holds no exported program; save it with"):
        architecture_digest(found.checkpoint, found.declaration)
