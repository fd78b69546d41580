from __future__ import annotations

import gzip
import json
from collections.abc import Callable

import pytest
import zstandard

from prewarm.store.manifest import canonical_json, manifest_path
from prewarm.store.signing import load_or_create_key, verify
from prewarm.store.status import Status

from .served import Served, record


@pytest.fixture
def house(serve: Callable[..., Served]) -> Served:
    house = serve()
    house.add_entry("m/1", Status.WARM, record=record(), aliases=["m/latest"])
    house.publish()
    return house


@pytest.mark.parametrize("tcp", [False, True])
def test_each_manifest_is_answered_as_it_was_signed(house: Served, tcp: bool) -> None:
    house.publish("another")
    answer = house.get("/v1/manifest", tcp=tcp)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    manifests = answer.json["manifests"]
    files = [manifest_path(house.cache_dir, name) for name in ("another", "builder")]
    assert manifests == [json.loads(file.read_bytes()) for file in files]
    assert files[0].read_bytes().strip() in answer.body
    key = load_or_create_key(house.state_dir).public
    for one in manifests:
        assert verify(canonical_json(one["signed"]), one["signatures"], [key])


def test_a_builder_that_published_nothing_answers_with_no_manifests(
    serve: Callable[..., Served],
) -> None:
    answer = serve().get("/v1/manifest")
    assert (answer.status, answer.json) == (200, {"manifests": []})


def test_a_reader_that_has_it_gets_no_body(house: Served) -> None:
    etag = house.get("/v1/manifest").headers["etag"]
    answer = house.get("/v1/manifest", headers={"If-None-Match": etag})
    assert (answer.status, answer.body, answer.headers["etag"]) == (304, b"", etag)


def test_news_are_answered_at_once_under_another_tag(house: Served) -> None:
    before = house.get("/v1/manifest")
    house.add_entry("new", Status.WARM, record=record("d"))
    house.publish()
    answer = house.get("/v1/manifest", headers={"If-None-Match": before.headers["etag"]})
    assert answer.status == 200
    [manifest] = answer.json["manifests"]
    assert [entry["model"] for entry in manifest["signed"]["entries"]] == ["m/1", "new"]


def test_a_manifest_that_is_gone_is_not_answered(house: Served) -> None:
    assert len(house.get("/v1/manifest").json["manifests"]) == 1
    manifest_path(house.cache_dir, "builder").unlink()
    assert house.get("/v1/manifest").json["manifests"] == []


def test_it_is_read_again_only_when_it_changed(
    house: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = house.get("/v1/manifest")

    def unexpected(*_: object, **__: object) -> None:
        raise AssertionError("it was read again")

    monkeypatch.setattr("prewarm.serve.shelf.trusted_manifests", unexpected)
    assert house.get("/v1/manifest").body == first.body
    house.publish("another")
    assert house.get("/v1/manifest").status == 500


@pytest.mark.parametrize(
    ("encoding", "decode"),
    [
        ("gzip", gzip.decompress),
        ("zstd", lambda data: zstandard.ZstdDecompressor().decompress(data)),
    ],
)
def test_encodings_are_the_same_manifest_under_tags_of_their_own(
    house: Served, encoding: str, decode: Callable[[bytes], bytes]
) -> None:
    plain = house.get("/v1/manifest")
    packed = house.get("/v1/manifest", headers={"Accept-Encoding": encoding})
    assert packed.headers["content-encoding"] == encoding
    assert decode(packed.body) == plain.body
    assert len(packed.body) < len(plain.body)
    assert packed.headers["etag"] != plain.headers["etag"]
    again = house.get(
        "/v1/manifest",
        headers={"Accept-Encoding": encoding, "If-None-Match": packed.headers["etag"]},
    )
    assert again.status == 304


def test_head_tells_length_and_tag(house: Served) -> None:
    plain, head = house.get("/v1/manifest"), house.ask("HEAD", "/v1/manifest")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(plain.body))
    assert head.headers["etag"] == plain.headers["etag"]


def test_a_manifest_that_others_can_write_is_left_out_and_told_once(house: Served) -> None:
    house.publish("open")
    manifest_path(house.cache_dir, "open").chmod(0o666)
    for _ in range(2):
        [manifest] = house.get("/v1/manifest").json["manifests"]
        assert manifest["signed"]["builder"] == "builder"
    house.publish("third")
    assert len(house.get("/v1/manifest").json["manifests"]) == 2
    assert len([line for line in house.told if "chmod go-w" in line]) == 1


def test_a_damaged_manifest_is_left_out_and_told(house: Served) -> None:
    manifest_path(house.cache_dir, "bad").write_bytes(b"{")
    assert len(house.get("/v1/manifest").json["manifests"]) == 1
    assert "is no JSON" in house.told[0]


def test_a_directory_that_others_can_write_is_refused_until_it_is_mended(house: Served) -> None:
    assert house.get("/v1/manifest").status == 200
    house.cache_dir.chmod(0o777)
    answer = house.get("/v1/manifest")
    assert (answer.status, answer.code) == (503, "not_trusted")
    assert "chmod go-w" in answer.json["error"]["message"]
    house.cache_dir.chmod(0o755)
    assert house.get("/v1/manifest").status == 200
