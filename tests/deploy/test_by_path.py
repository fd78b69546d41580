"""A model named by a path: by content, then by architecture, else told with what to do."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from prewarm.deploy.by_path import NOT_PROVEN, published_for_path
from prewarm.deploy.published import Published, read_published
from prewarm.errors import NotWarm, RegistryError
from prewarm.registry.architecture import architecture_digest
from prewarm.registry.checkpoint import list_checkpoint
from prewarm.registry.content import content_digest
from prewarm.registry.declaration_file import read_declaration

from .conftest import Publisher

DECLARATION = """\
[model]
match = "*"
loader = "transformers"
class = "AutoModel"
dtype = "float32"
device = "cpu"
[compile]
dynamic = false
[[shapes]]
name = "a"
inputs.x = { dtype = "int64", shape = [1, 2], high = 3 }
"""


@dataclass
class Model:
    """A checkpoint outside of any registry, and what is published of it."""

    path: Path
    published: tuple[Published, ...]


def checkpoint(path: Path, weights: bytes, hidden_size: int = 4) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(f'{{"model_type": "bert", "hidden_size": {hidden_size}}}')
    (path / "vocabulary.bin").write_bytes(weights)
    return path


@pytest.fixture
def model(publish: Publisher, tmp_path: Path) -> Model:
    path = checkpoint(tmp_path / "models" / "a", b"one")
    (path.parent / "prewarm.toml").write_text(DECLARATION)
    found = list_checkpoint(path, name="a", root=tmp_path)
    declaration = read_declaration(path.parent / "prewarm.toml")
    publish("gpt2")
    publish(
        "minilm/v1",
        checkpoint=content_digest(found),
        architecture=architecture_digest(found, declaration),
    )
    published = read_published(publish.cache_dir, uid=os.geteuid(), warn=print)
    return Model(path, published)


def names(found: tuple[Published, ...]) -> list[str]:
    return [one.entry.model for one in found]


def test_the_same_content_anywhere_is_the_published_model(model: Model, tmp_path: Path) -> None:
    elsewhere = checkpoint(tmp_path / "elsewhere" / "copy", b"one")

    for path in (model.path, elsewhere, elsewhere / ".." / "copy"):
        found, caveat = published_for_path(path, model.published)
        assert (names(found), caveat) == (["minilm/v1"], None)


def test_a_link_is_followed(model: Model, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(model.path)

    assert names(published_for_path(tmp_path / "link", model.published)[0]) == ["minilm/v1"]


def test_other_weights_of_the_architecture_are_not_proven(model: Model) -> None:
    other = checkpoint(model.path.parent / "b", b"two")

    found, caveat = published_for_path(other, model.published)

    assert (names(found), caveat) == (["minilm/v1"], NOT_PROVEN)
    assert NOT_PROVEN == "same architecture, not proven for these weights"


def test_another_architecture_is_not_published(model: Model) -> None:
    other = checkpoint(model.path.parent / "b", b"two", hidden_size=8)

    with pytest.raises(NotWarm, match="no published checkpoint has this content or this archit"):
        published_for_path(other, model.published)


def test_without_a_declaration_only_content_can_match(model: Model, tmp_path: Path) -> None:
    other = checkpoint(tmp_path / "elsewhere" / "b", b"two")

    with pytest.raises(NotWarm, match=r"not known without a prewarm\.toml that covers it; run"):
        published_for_path(other, model.published)


def test_a_wrong_declaration_is_as_none(model: Model) -> None:
    (model.path.parent / "prewarm.toml").write_text(DECLARATION.replace("dynamic", "dynmaic"))
    other = checkpoint(model.path.parent / "b", b"two")

    with pytest.raises(NotWarm, match="no published checkpoint has this content"):
        published_for_path(other, model.published)
    assert names(published_for_path(model.path, model.published)[0]) == ["minilm/v1"]


def test_a_broken_link_is_told(model: Model, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")

    with pytest.raises(RegistryError, match="link: cannot be read"):
        published_for_path(tmp_path / "link", model.published)
