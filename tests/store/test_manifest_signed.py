"""Manifests from where others can write: nothing is parsed before a trusted key has signed it."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from prewarm.errors import ManifestUnavailable
from prewarm.store.manifest import Manifest, manifest_path, write_manifest
from prewarm.store.manifest_envelope import open_envelope, split_manifests
from prewarm.store.manifest_signed import read_signed_manifest, signed_manifest
from prewarm.store.manifest_text import canonical_json
from prewarm.store.signing import SigningKey, load_or_create_key

MANIFEST = Manifest(
    builder="gpu-1",
    version="1",
    environments={"e": {"device": "NVIDIA ‘H200’"}},
    entries=(),
    generated_at="2027-01-15T08:00:00.000Z",
)


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return load_or_create_key(tmp_path / "state")


@pytest.fixture
def path(tmp_path: Path, key: SigningKey) -> Path:
    write_manifest(tmp_path, MANIFEST, key)
    return manifest_path(tmp_path, "gpu-1")


def refusal(data: bytes, *keys: str) -> ManifestUnavailable:
    with pytest.raises(ManifestUnavailable) as caught:
        signed_manifest(data, keys, where="there")
    assert str(caught.value).startswith("there: ")
    return caught.value


def test_what_a_trusted_key_has_signed_is_read(path: Path, key: SigningKey, tmp_path: Path) -> None:
    other = load_or_create_key(tmp_path / "other")

    assert read_signed_manifest(path, [other.public, key.public]).builder == "gpu-1"


def test_it_must_lie_under_its_builders_name(path: Path, key: SigningKey) -> None:
    path.rename(path.with_name("gpu-2.json"))

    with pytest.raises(ManifestUnavailable, match="under another's name"):
        read_signed_manifest(path.with_name("gpu-2.json"), [key.public])


def test_another_key_is_refused_with_the_next_step(
    path: Path, key: SigningKey, tmp_path: Path
) -> None:
    other = load_or_create_key(tmp_path / "other")

    error = refusal(path.read_bytes(), other.public)

    assert error.code == "not_trusted"
    assert f"signed by {key.keyid}" in str(error)
    assert "prewarm doctor" in str(error)
    assert "--trust ed25519:" in str(error)


def changed(path: Path, **values: Any) -> bytes:
    body = json.loads(path.read_bytes())
    body["signed"] |= values
    return canonical_json(body)


def test_a_changed_byte_is_refused(path: Path, key: SigningKey) -> None:
    assert refusal(changed(path, generation=2), key.public).code == "not_trusted"
    spaced = path.read_bytes().replace(b'"version":', b'"version": ')
    assert refusal(spaced, key.public).code == "not_trusted"


def test_an_unsigned_one_is_refused(path: Path, key: SigningKey) -> None:
    body = json.loads(path.read_bytes()) | {"signatures": []}

    error = refusal(canonical_json(body), key.public)

    assert (error.code, "is not signed" in str(error)) == ("not_trusted", True)


def test_what_is_signed_but_no_manifest_is_refused(key: SigningKey) -> None:
    for signed in (b"{", b"NaN", b"[]", b'{"format":2}', b"\xff", b"[" * 100_000):
        body = b'{"signatures":[%s],"signed":%s}' % (canonical_json(key.sign(signed)), signed)
        assert refusal(body, key.public).code == "bad_manifest"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"null",
        b'{"signatures":[',
        b'{"signatures":[]}',
        b'{"signatures":[1],"signed":{}}',
        b'{"signatures":[{}],"signed":{}}',
        b'{"signatures":[{"keyid":"a","sig":1}],"signed":{}}',
        b'{"signatures":[' + b"[" * 200_000,
        b'{"signatures":["' + b"a" * 200_000 + b'"],"signed":{}}',
        '{"signatures":[{"keyid":"ä","sig":"ä"}],"signed":{}}'.encode(),
        b'{"signed":{},"signatures":[]}',
        b"\x00" * 1000,
    ],
)
def test_what_is_no_envelope_is_refused(data: bytes, key: SigningKey) -> None:
    assert open_envelope(data) is None
    assert refusal(data, key.public).code == "bad_manifest"


def test_a_strangers_endless_lists_cost_no_memory(key: SigningKey) -> None:
    endless = b'],"signed":[' + b"{}," * 5_000_000 + b"{}]}"
    signature = b'{"keyid":"%s","sig":"AA=="}' % key.keyid.encode()
    bodies = [b'{"signatures":[' + found + endless for found in (b"", signature)]
    tracemalloc.start()
    try:
        for body in bodies:
            assert refusal(body, key.public).code == "not_trusted"
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < len(endless), "it was parsed"


def test_several_are_parted_and_each_is_whole(path: Path) -> None:
    one = path.read_bytes().rstrip()
    both = b'{"manifests":[%s,%s]}\n' % (one, one)

    assert [bytes(part) for part in split_manifests(both) or ()] == [one, one]
    assert split_manifests(b'{"manifests":[]}') == ()
    for wrong in (b"", b"[]", b'{"manifests":{}}', b'{"manifests":[', one, both + b"x"):
        assert split_manifests(wrong) is None
    assert split_manifests(b'{"manifests":[' + b',{"signatures":[' * 300 + b"]}") is None


def test_a_text_that_looks_like_a_beginning_parts_nothing(path: Path, key: SigningKey) -> None:
    tricky = Manifest(
        builder="gpu-1",
        version='x,{"signatures":[',
        environments={},
        entries=(),
        generated_at="2027-01-15T08:00:00.000Z",
    )
    write_manifest(path.parents[1], tricky, key)
    one = path.read_bytes().rstrip()

    # In a text the quotes are escaped, so that it is not met.
    [part] = split_manifests(b'{"manifests":[%s]}' % one) or ()
    assert signed_manifest(part, [key.public], where="there").version == tricky.version
