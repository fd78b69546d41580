from __future__ import annotations

import os
import shutil

import pytest

from prewarm.errors import RegistryError
from prewarm.registry.scan import select_named


@pytest.fixture
def keep(registry, minilm):
    """Return the writer of a root's declaration that keeps some versions of every model."""

    def write(text: str) -> None:
        covering = minilm.replace("minilm/*", "**")
        registry.write("prewarm.toml", f'[registry]\nkeep = "{text}"\n{covering}')

    return write


def names(registry) -> set[str]:
    return {one.checkpoint.name for one in registry.scan()}


def test_versions_are_ordered_by_their_numbers_not_by_their_letters(registry, keep):
    for version in ("v1", "v2", "v9", "v10"):
        registry.bert(f"m/{version}")
    keep("latest:2")
    assert names(registry) == {"m/v9", "m/v10"}


def test_each_model_keeps_its_own(registry, keep):
    for name in ("a/1", "a/2", "b/1", "b/2", "a/inner/1"):
        registry.bert(name)
    keep("latest:1")
    assert names(registry) == {"a/2", "b/2", "a/inner/1"}


@pytest.mark.parametrize("text", ["all", "latest:9"])
def test_nothing_is_left_out_where_there_is_room(registry, keep, text):
    registry.bert("m/1")
    registry.bert("m/2")
    keep(text)
    assert names(registry) == {"m/1", "m/2"}


def test_what_is_no_version_always_stays(registry, keep):
    for name in ("m/base", "m/tuned", "m/1", "m/2", "alone"):
        registry.bert(name)
    keep("latest:1")
    assert names(registry) == {"m/base", "m/tuned", "m/2", "alone"}


def test_what_a_link_names_stays_beside_the_newest(registry, keep):
    for version in range(1, 6):
        registry.bert(f"m/v{version}")
    registry.link("m/latest", "v5")
    registry.link("m/stable", "v1")
    keep("latest:2")
    assert names(registry) == {"m/v5", "m/v4", "m/v1"}


def test_a_link_that_is_a_version_itself_protects_nothing(registry, keep):
    registry.bert("m/v1")
    registry.bert("m/v2")
    registry.link("m/1", "v1")
    keep("latest:1")
    assert names(registry) == {"m/v2"}


def test_an_older_version_stays_until_the_newer_one_is_whole(registry, keep, safetensors):
    registry.bert("m/v1")
    registry.bert("m/v2")
    whole = (registry.root / "m/v2/model.safetensors").read_bytes()
    registry.write("m/v2/model.safetensors", whole[:-1])
    keep("latest:1")
    assert names(registry) == {"m/v1", "m/v2"}
    registry.write("m/v2/model.safetensors", whole)
    assert names(registry) == {"m/v2"}


def test_an_older_version_comes_back_when_the_newer_one_goes(registry, keep):
    registry.bert("m/v1")
    registry.bert("m/v2")
    keep("latest:1")
    assert names(registry) == {"m/v2"}
    shutil.rmtree(registry.root / "m/v2")
    assert names(registry) == {"m/v1"}


def test_revisions_of_a_hugging_face_cache_are_ordered_by_time(registry, keep):
    for number, revision in enumerate(("ccc", "bbb", "aaa")):
        path = registry.bert(f"models--org--name/snapshots/{revision}")
        for file in path.iterdir():
            os.utime(file, (2e9 + number, 2e9 + number))  # ahead of the time of their change
    registry.write("models--org--name/refs/main", "ccc")
    keep("latest:1")
    assert names(registry) == {"org/name@aaa", "org/name@ccc"}


def test_exported_files_are_versions_by_their_directory(registry, keep):
    registry.write("m/1/m.pt2", b"PK")
    registry.write("m/2/m.pt2", b"PK")
    registry.write("m/2/other.pt2", b"PK")
    keep("latest:1")
    assert names(registry) == {"m/2/m.pt2", "m/2/other.pt2"}


def test_one_that_is_left_out_and_asked_for_is_told_so(registry, keep):
    registry.bert("m/1")
    registry.bert("m/2")
    keep("latest:1")
    with pytest.raises(RegistryError, match=r"m/1: no such checkpoint in .*or `keep`"):
        select_named(registry.scan(), ["m/1"], registry.root)
