from __future__ import annotations

import json
import time

import pytest


def test_topmost_directory_is_the_checkpoint(registry):
    registry.bert("a/b")
    registry.bert("a/b/inner")
    registry.bert("a/c/d/e")
    assert registry.names() == {"a/b": (), "a/c/d/e": ()}


def test_config_without_weights_is_none(registry):
    registry.write("tokenizer/config.json", "{}")
    registry.write("weights/model.safetensors", b"x")
    assert registry.names() == {}


def test_index_of_shards_counts_as_weights(registry):
    registry.write("m/config.json", "{}")
    registry.write("m/model.safetensors.index.json", '{"weight_map": {"w": "a.safetensors"}}')
    (found,) = registry.scan()
    assert found.completeness.state == "broken"
    assert found.completeness.reason.startswith("a.safetensors is missing")


@pytest.mark.parametrize("mark", ["model_index.json", "MLmodel"])
def test_pipelines_and_mlflow_models_are_checkpoints(registry, mark):
    registry.write(f"m/{mark}", "{}")
    registry.bert("m/unet")
    assert registry.names() == {"m": ()}


def test_each_exported_file_is_a_checkpoint(registry):
    registry.write("exported/a.pt2", b"x")
    registry.write("exported/b.pt2", b"x")
    registry.link("exported/latest.pt2", "b.pt2")
    assert registry.names() == {"exported/a.pt2": (), "exported/b.pt2": ("exported/latest.pt2",)}


def test_passed_over_directories(registry):
    for name in (".git", ".locks", "blobs", "copy.incomplete", "copy.tmp", "__pycache__"):
        registry.bert(f"{name}/m")
    registry.bert("m")
    assert registry.names() == {"m": ()}


def test_excluded_directories(registry):
    registry.write(
        "prewarm.toml", '[registry]\nexclude = ["old", "**/draft-*", "a/x", "models--*"]'
    )
    for name in ("old/m", "a/draft-1", "a/x", "a/y", "models--org--name/snapshots/1"):
        registry.bert(name)
    assert registry.names() == {"a/y": ()}


def test_hugging_face_cache(registry):
    revision, older = "a" * 40, "b" * 40
    hub = "hub/models--org--name"
    registry.bert("whole")
    weights = (registry.root / "whole/model.safetensors").read_bytes()
    registry.write(f"{hub}/blobs/{'1' * 64}", weights)
    registry.write(f"{hub}/blobs/{'2' * 40}", '{"model_type": "bert"}')
    registry.write(f"{hub}/blobs/{'3' * 64}.incomplete", b"x")
    for snapshot in (revision, older):
        registry.link(f"{hub}/snapshots/{snapshot}/config.json", f"../../blobs/{'2' * 40}")
        registry.link(f"{hub}/snapshots/{snapshot}/model.safetensors", f"../../blobs/{'1' * 64}")
    registry.write(f"{hub}/refs/main", revision)
    registry.write(f"{hub}/refs/pr/1", f"{older}\n")
    registry.write(f"{hub}/.no_exist/{revision}/x.json", b"")
    registry.write("hub/models--org--tokenizer/snapshots/c/tokenizer.json", "{}")
    registry.write("hub/datasets--org--data/snapshots/c/config.json", "{}")
    registry.write("hub/.locks/models--org--name/x.lock", b"")
    registry.write("hub/version.txt", "1")
    assert registry.names() == {
        "whole": (),
        f"hub/org/name@{revision}": ("hub/org/name@main",),
        f"hub/org/name@{older}": ("hub/org/name@pr/1",),
    }
    found = next(one for one in registry.scan() if one.checkpoint.name.endswith(revision))
    assert found.completeness.state == "complete"
    assert found.checkpoint.size_bytes > len(weights)
    assert found.checkpoint.path == registry.root / hub / "snapshots" / revision


def test_hugging_face_model_without_organisation(registry):
    registry.bert("models--gpt2/snapshots/abc")
    registry.bert("models--org--a--b/snapshots/abc")
    assert registry.names() == {"gpt2@abc": (), "org/a--b@abc": ()}


def test_hugging_face_blob_outside_the_registry(registry, tmp_path):
    (tmp_path / "blob").write_bytes(b"x")
    registry.bert("models--org--name/snapshots/abc")
    weights = registry.root / "models--org--name/snapshots/abc/model.safetensors"
    weights.unlink()
    weights.symlink_to(tmp_path / "blob")
    (found,) = registry.scan()
    assert found.completeness.state == "broken"
    assert "outside the registry" in found.completeness.reason


def test_versions_with_latest(registry):
    registry.bert("name/1")
    registry.bert("name/2")
    registry.link("name/latest", "2")
    registry.link("name/previous", str(registry.root / "name/1"))
    registry.link("prod", "name/latest")
    assert registry.names() == {
        "name/1": ("name/previous",),
        "name/2": ("name/latest", "prod"),
    }


def test_link_to_a_container_counts_nothing_twice(registry):
    registry.bert("models/a/1")
    registry.link("all", "models")
    registry.link("models/a/up", "..")
    registry.link("models/loop", ".")
    registry.link("self", "self")
    registry.link("root", ".")
    assert registry.names() == {"models/a/1": ()}


def test_link_to_a_hidden_store_is_a_checkpoint_under_its_own_name(registry):
    registry.bert(".releases/7f3")
    registry.link("current", ".releases/7f3")
    registry.link("stable", "current")
    assert registry.names() == {"current": ("stable",)}


def test_link_out_of_the_registry_is_told_and_not_followed(registry, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "config.json").write_text("{}")
    (outside / "model.safetensors").write_bytes(b"x")
    registry.link("m", str(outside))
    registry.link("data", str(tmp_path))
    registry.link("gone", "nowhere")
    (found,) = registry.scan()
    assert found.checkpoint.name == "m"
    assert str(found.problem).startswith(f"m: links to {outside}, outside the registry, and is not")


def test_triton(registry):
    registry.write("resnet/config.pbtxt", "")
    registry.write("resnet/1/model.pt", b"PK")
    registry.write("resnet/2/model.pt2", b"PK")
    registry.write("resnet/labels/x.txt", b"")
    assert registry.names() == {"resnet/1": (), "resnet/2": ()}


def test_mlflow_registry_names_its_artifacts(registry):
    for run in ("r1", "r2"):
        registry.write(f"mlruns/0/{run}/artifacts/model/MLmodel", "flavors: {}")
    for number, run in ((1, "r1"), (2, "r2")):
        place = registry.root / f"mlruns/0/{run}/artifacts/model"
        registry.write(
            f"mlruns/models/net/version-{number}/meta.yaml",
            f"name: net\nsource: file://{place}\nversion: {number}\n",
        )
    registry.write("mlruns/models/net/version-3/meta.yaml", "source: models:/m-123\n")
    registry.write("mlruns/models/net/aliases/champion", "2")
    assert registry.names() == {
        "mlruns/0/r1/artifacts/model": ("mlruns/models/net/version-1",),
        "mlruns/0/r2/artifacts/model": (
            "mlruns/models/net/champion",
            "mlruns/models/net/version-2",
        ),
    }


def test_the_weights_that_a_declaration_names(registry, python_model):
    torch_model = python_model.replace('loader = "python"', 'loader = "torch"').replace(
        "[model]", '[model]\nmatch = "*"\nstate_dict = "w.dat"'
    )
    registry.write("prewarm.toml", torch_model)
    registry.write("a/w.dat", b"x")
    registry.write("b/other.dat", b"x")
    assert registry.names() == {"a": ()}


def test_a_directory_with_its_own_declaration(registry, python_model):
    registry.write("a/prewarm.toml", python_model)
    registry.write("a/src/net.py", "")
    registry.write("b/net.py", "")
    assert registry.names() == {"a": ()}


def test_a_declaration_above_needs_weights_or_a_plain_name(registry, python_model):
    registry.write("prewarm.toml", python_model.replace("[model]", '[model]\nmatch = ["*", "c/d"]'))
    registry.write("a/model.pt", b"PK")
    registry.write("b/readme.txt", b"")
    registry.write("c/d/params.json", "{}")
    assert set(registry.names()) == {"a", "c/d"}


def test_random_weights_need_no_file(registry, minilm):
    registry.write("prewarm.toml", minilm.replace("[model]", '[model]\nweights = "random"'))
    registry.write("minilm/v1/config.json", "{}")
    assert registry.names() == {"minilm/v1": ()}


def test_a_default_match_covers_the_versions_in_its_directory(registry, python_model):
    registry.write("net/prewarm.toml", python_model)
    registry.write("net/1/model.pt", b"PK")
    registry.write("net/2/model.pt", b"PK")
    found = registry.scan()
    assert [one.checkpoint.name for one in found] == ["net/1", "net/2"]
    assert all(one.declaration for one in found)


def test_the_root_itself_can_be_a_checkpoint(registry):
    registry.bert(".")
    registry.bert("inner")
    assert registry.names() == {"registry": ()}


def test_a_name_that_is_no_text_is_told(registry):
    import os

    try:
        os.mkdir(os.fsencode(registry.root) + b"/\xff\xfe")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    registry.bert("m")
    found = registry.scan()
    assert [one.checkpoint.name for one in found] == ["\\udcff\\udcfe", "m"]
    assert "its name is no plain text; rename it" in str(found[0].problem)
    json.dumps([one.checkpoint.name for one in found]).encode()


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31m", "a\x7f", "a\u202eb"])
def test_a_name_that_a_terminal_would_act_on_is_told_spelt_out(registry, name):
    registry.bert(name)
    registry.write("e" + name + ".pt2", "")
    registry.bert("m")
    found = registry.scan()
    spelt = name.encode("unicode_escape").decode()
    assert [one.checkpoint.name for one in found] == [spelt, f"e{spelt}.pt2", "m"]
    assert [one.problem is None for one in found] == [False, False, True]


@pytest.mark.parametrize("name", ["naïve", "模型", "a b", "a\u00a0b", "می\u200cخواهم"])
def test_names_of_all_languages_are_names(registry, name):
    registry.bert(name)
    assert list(registry.names()) == [name]


def test_a_thousand_checkpoints_take_less_than_a_second(registry, minilm, safetensors):
    registry.write("prewarm.toml", minilm)
    content = safetensors({f"layer.{number}.w": ("F32", [4]) for number in range(20)})
    for number in range(1000):
        registry.write(f"minilm/v{number}/config.json", '{"model_type": "bert"}')
        registry.write(f"minilm/v{number}/tokenizer.json", "{}")
        registry.write(f"minilm/v{number}/model.safetensors", content)
    started = time.process_time()
    found = registry.scan()
    assert time.process_time() - started < 1.0
    assert len(found) == 1000
    assert all(one.completeness.state == "complete" and one.declaration for one in found)
