"""``prewarm init``: a first declaration that our own parser takes; nothing is overwritten."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from prewarm.registry.declaration_file import read_declaration

Result = tuple[int, str, str]
Prewarm = Callable[..., Result]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "minilm" / "v1"
    path.mkdir(parents=True)
    (path / "config.json").write_text(
        '{"architectures": ["BertModel"], "model_type": "bert", "torch_dtype": "float32"}'
    )
    header = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    (path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    return path


def test_a_first_declaration_is_written_beside_the_weights(
    prewarm: Prewarm, checkpoint: Path
) -> None:
    code, out, err = prewarm("init", checkpoint, "--device", "cpu")

    assert (code, err) == (0, "")
    assert "prewarm scan --registry" in out
    declaration = read_declaration(checkpoint / "prewarm.toml")
    assert declaration.model.loader == "transformers"
    assert declaration.model.device == "cpu"


def test_a_file_that_is_there_is_kept_unless_forced(prewarm: Prewarm, checkpoint: Path) -> None:
    file = checkpoint / "prewarm.toml"
    file.write_text("# mine\n")

    code, _, err = prewarm("init", checkpoint)
    assert code == 1
    assert "is there already; pass --force" in err
    assert file.read_text() == "# mine\n"

    assert prewarm("init", checkpoint, "--force")[0] == 0
    assert "[model]" in file.read_text()


def test_another_place_and_json(prewarm: Prewarm, checkpoint: Path, tmp_path: Path) -> None:
    target = tmp_path / "x.toml"

    _, out, _ = prewarm("init", checkpoint, "-o", target, "--json")

    assert json.loads(out) == {"file": str(target)}
    assert target.is_file()
    assert not (checkpoint / "prewarm.toml").exists()


def test_a_checkpoint_that_is_not_there_is_told(prewarm: Prewarm, tmp_path: Path) -> None:
    code, _, err = prewarm("init", tmp_path / "nope")

    assert code == 1
    assert "no such checkpoint" in err
