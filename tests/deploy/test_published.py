"""What is published: every builder's trusted manifests; what is refused is told, the rest used."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from prewarm.deploy.published import Published, read_published
from prewarm.errors import ManifestUnavailable
from prewarm.store.manifest import manifest_path, manifests_directory
from prewarm.store.signing import load_or_create_key

from .conftest import Publisher


def read(publish: Publisher, *, refused: int = 0) -> tuple[tuple[Published, ...], list[str]]:
    lines: list[str] = []
    found = read_published(publish.cache_dir, uid=os.geteuid(), warn=lines.append)
    assert len(lines) == refused
    return found, lines


def other_builder(publish: Publisher) -> Publisher:
    """Return a second builder, whose entries go into the same cache directory."""
    other = Publisher(publish.root / "other", publish.facts)
    other.root.mkdir()
    (other.root / "cache").symlink_to(publish.cache_dir)
    return other


def test_an_entry_is_joined_with_its_environment(publish: Publisher) -> None:
    publish()

    [found] = read(publish)[0]

    assert found.entry.model == "minilm/v1"
    assert found.environment.id == found.entry.environment
    assert found.environment.get("device") == "cpu"
    assert found.generated_at == "2027-01-15T08:00:00.000Z"


def test_the_manifests_of_all_builders_are_merged(publish: Publisher) -> None:
    publish("minilm/v1")
    other_builder(publish)("gpt2", builder="gpu-2", facts={"torch": "2.12.1"})

    found = read(publish)[0]

    assert {(one.entry.model, one.environment.get("torch") == "2.12.1") for one in found} == {
        ("minilm/v1", False),
        ("gpt2", True),
    }


@pytest.mark.parametrize("stated", ["4", None, "many", "-1"])
def test_the_declared_threads_are_read_from_the_variables(
    publish: Publisher, stated: str | None
) -> None:
    publish(variables={} if stated is None else {"OMP_NUM_THREADS": stated})

    assert read(publish)[0][0].threads == (4 if stated == "4" else 0)


def test_a_refused_manifest_is_told_and_the_others_are_used(publish: Publisher) -> None:
    publish("minilm/v1")
    other_builder(publish)("gpt2", builder="gpu-2")
    manifest_path(publish.cache_dir, "gpu-2").chmod(0o664)
    manifest_path(publish.cache_dir, "gpu-3").write_bytes(b"{")

    found, lines = read(publish, refused=2)

    assert [one.entry.model for one in found] == ["minilm/v1"]
    told = "\n".join(lines)
    assert "gpu-2.json can be written by its group" in told
    assert "gpu-3.json: is no JSON" in told


def test_if_all_are_refused_the_first_reason_is_told(publish: Publisher) -> None:
    publish()
    manifest_path(publish.cache_dir, "gpu-1").chmod(0o646)

    with pytest.raises(ManifestUnavailable, match=r"chmod go-w .*gpu-1\.json"):
        read(publish)


def test_an_unknown_format_is_refused_with_the_next_step(publish: Publisher) -> None:
    publish()
    path = manifest_path(publish.cache_dir, "gpu-1")
    body = json.loads(path.read_bytes())
    body["signed"]["format"] = 2
    path.write_text(json.dumps(body))

    with pytest.raises(ManifestUnavailable, match=r"format: found 2.*upgrade this prewarm"):
        read(publish)


def test_without_a_manifest_what_to_do_is_told(publish: Publisher) -> None:
    manifests_directory(publish.cache_dir).mkdir(parents=True)

    with pytest.raises(ManifestUnavailable, match="holds no manifest; run `prewarm scan`"):
        read(publish)


@pytest.mark.parametrize("place", [lambda cache: cache, manifests_directory])
def test_a_directory_that_others_can_write_is_not_trusted(
    publish: Publisher, place: object
) -> None:
    publish()
    assert callable(place)
    place(publish.cache_dir).chmod(0o777)

    with pytest.raises(ManifestUnavailable, match="can be written by everybody") as caught:
        read(publish)

    assert (caught.value.code, caught.value.exit_code) == ("not_trusted", 5)


def test_a_cache_dir_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"")

    with pytest.raises(ManifestUnavailable, match="cannot be read"):
        read_published(tmp_path / "cache", uid=os.geteuid(), warn=print)


# -- by key


def by_key(publish: Publisher, *keys: str) -> tuple[tuple[Published, ...], list[str]]:
    lines: list[str] = []
    found = read_published(publish.cache_dir, uid=os.geteuid(), warn=lines.append, keys=keys)
    return found, lines


def key_of(publish: Publisher) -> str:
    return load_or_create_key(publish.root / "state").public


def test_a_directory_that_others_can_write_is_read_by_key(publish: Publisher) -> None:
    publish("minilm/v1")
    manifests_directory(publish.cache_dir).chmod(0o777)
    other = other_builder(publish)
    other("gpt2", builder="gpu-2")

    found, [line] = by_key(publish, key_of(publish))

    assert [one.entry.model for one in found] == ["minilm/v1"]
    assert "gpu-2.json: is not signed by a trusted key" in line
    found, lines = by_key(publish, key_of(publish), key_of(other))
    assert ({one.entry.model for one in found}, lines) == ({"minilm/v1", "gpt2"}, [])


def test_a_trusted_directory_needs_no_key_and_keys_change_nothing(publish: Publisher) -> None:
    publish()
    other = load_or_create_key(publish.root / "other").public

    assert len(by_key(publish, other)[0]) == 1


def test_a_file_that_others_can_write_is_read_by_key(publish: Publisher) -> None:
    publish()
    manifest_path(publish.cache_dir, "gpu-1").chmod(0o666)

    assert len(by_key(publish, key_of(publish))[0]) == 1
    with pytest.raises(ManifestUnavailable, match="can be written by everybody") as caught:
        by_key(publish)
    assert caught.value.code == "not_trusted"
    assert "--trust" in str(caught.value)


def test_only_a_wrong_key_is_told_with_its_code(publish: Publisher) -> None:
    publish()
    publish.cache_dir.chmod(0o777)

    with pytest.raises(ManifestUnavailable, match="is not signed by a trusted key") as caught:
        by_key(publish, load_or_create_key(publish.root / "other").public)

    assert (caught.value.code, caught.value.exit_code) == ("not_trusted", 5)
