"""What a manifest entry records becomes what a server builds, wherever the checkpoint lies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prewarm.deploy.recorded import buildable
from prewarm.errors import ConfigError, NotWarm
from prewarm.registry.declaration import Declaration
from prewarm.registry.declaration_file import read_declaration
from prewarm.store.manifest import canonical_json, without_paths

DECLARATION = """\
[model]
match = "v*"
loader = "torch"
factory = "own:build"
path = ["src", "gone"]
state_dict = "weights.pt"
device = "cpu"
[compile]
mode = ["max-autotune", "default"]
dynamic = false
targets = [".", { at = "head", fullgraph = true }]
[[shapes]]
name = "rows"
args = [{ dtype = "float32", shape = ["batch", 64] }]
sizes = { batch = [8, 1] }
"""


def declared(root: Path, text: str = DECLARATION) -> Declaration:
    directory = root / "team" / "own"
    for name in ("src", "gone", "v1"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    (directory / "prewarm.toml").write_text(text)
    return read_declaration(directory / "prewarm.toml")


def entry(declaration: Declaration, **others: Any) -> dict[str, Any]:
    """Return an entry as a manifest carries it."""
    recorded = without_paths(declaration.recorded())
    return {
        "model": "team/own/v1",
        "compile": {"mode": "default"},
        "proof": {
            "declared": recorded,
            "source_files": {"place": "team/own/v1", "file": "team/own/prewarm.toml"},
        },
        **others,
    }


def test_it_is_what_a_build_is_asked_for_in_the_mode_that_was_built(tmp_path: Path) -> None:
    declaration = declared(tmp_path)

    found = buildable(entry(declaration), path=None, registry=tmp_path)

    asked = declaration.request()
    assert found.checkpoint == tmp_path / "team/own/v1"
    assert found.mode == "default"
    assert found.declaration["model"] == asked["model"]
    assert found.declaration["shapes"] == asked["shapes"]
    kept = {name: value for name, value in asked["compile"].items() if name != "mode"}
    stated = {**found.declaration["compile"]}
    assert stated.pop("mode") == "max-autotune"
    assert [one["at"] for one in stated["targets"]] == [one["at"] for one in kept.pop("targets")]
    assert stated.pop("targets")[1]["fullgraph"] is True
    assert stated == kept


def test_source_is_found_from_the_checkpoint_wherever_that_lies(tmp_path: Path) -> None:
    found_there = entry(declared(tmp_path / "registry"))
    elsewhere = tmp_path / "elsewhere" / "checkpoint"
    elsewhere.mkdir(parents=True)
    (tmp_path / "elsewhere" / "src").mkdir()

    found = buildable(found_there, path=elsewhere, registry=None)

    assert found.checkpoint == elsewhere
    # What is not there must be importable by itself.
    assert found.declaration["model"]["path"] == [str(tmp_path / "elsewhere" / "src")]


def test_a_path_of_the_builder_is_told_and_not_guessed(tmp_path: Path) -> None:
    text = DECLARATION.replace("[compile]", 'kwargs = { vocabulary = "/srv/words.txt" }\n[compile]')

    with pytest.raises(ConfigError, match=r"kwargs\.vocabulary is a path on the builder's machine"):
        buildable(entry(declared(tmp_path, text)), path=None, registry=tmp_path)


@pytest.mark.parametrize(
    ("path", "registry", "told"),
    [
        (None, None, "no registry is seen here; name its checkpoint with path="),
        (None, Path("/nowhere"), "/nowhere/team/own/v1 is not there; name its checkpoint"),
        (Path("/nowhere/v1"), None, "/nowhere/v1: is not there"),
    ],
)
def test_a_checkpoint_that_is_not_found_is_told(
    tmp_path: Path, path: Path | None, registry: Path | None, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        buildable(entry(declared(tmp_path)), path=path, registry=registry)


def test_an_older_record_says_what_to_run(tmp_path: Path) -> None:
    older = entry(declared(tmp_path))
    del older["proof"]["declared"]["load"]
    for proof in (older["proof"], {}):
        with pytest.raises(NotWarm, match="run `prewarm verify team/own/v1` on the builder"):
            buildable({**older, "proof": proof}, path=None, registry=tmp_path)


def test_the_order_of_arguments_outlives_the_sorting_of_a_manifest(tmp_path: Path) -> None:
    text = DECLARATION + (
        'inputs.zeta = { dtype = "int64", shape = ["batch"] }\n'
        'inputs.alpha.second = { dtype = "int64", shape = ["batch"] }\n'
        'inputs.alpha.first = { dtype = "int64", shape = ["batch"] }\n'
        "kwargs = { use = true, asked = 1 }\n"
    )
    declaration = declared(tmp_path, text)
    signed = json.loads(canonical_json(entry(declaration)))

    found = buildable(signed, path=None, registry=tmp_path)

    asked = declaration.request()
    assert json.dumps(found.shapes[0]["inputs"]) == json.dumps(asked["shapes"][0]["inputs"])
    assert [*found.shapes[0]["inputs"], *found.shapes[0]["inputs"]["alpha"]] == [
        "zeta", "alpha", "second", "first",
    ]  # fmt: skip
    assert list(found.shapes[0]["kwargs"]) == ["use", "asked"]
    assert found.shapes == asked["shapes"]


@pytest.mark.parametrize("text", [None, 3, "", "{", "3", "[]", "[3]", '[{"sizes": []}]'])
def test_arguments_that_cannot_be_read_are_an_older_record(tmp_path: Path, text: Any) -> None:
    wrong = entry(declared(tmp_path))
    wrong["proof"]["declared"]["load"]["arguments"] = text
    with pytest.raises(NotWarm, match="older prewarm"):
        buildable(wrong, path=None, registry=tmp_path)
