from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from prewarm.errors import ConfigError, ManifestUnavailable, NotWritable
from prewarm.store import manifest_files, whole_file
from prewarm.store.manifest import (
    Manifest,
    ManifestEntry,
    canonical_json,
    manifest_path,
    read_manifest,
    read_manifests,
    write_manifest,
)
from prewarm.store.manifest_reading import Reading
from prewarm.store.signing import SigningKey, load_or_create_key

Record = Callable[..., dict[str, object]]
Unprivileged = Callable[[], AbstractContextManager[None]]
RunUntilKilled = Callable[[Callable[[], object], str, int], bool]


@pytest.fixture
def key(state_dir: Path) -> SigningKey:
    return load_or_create_key(state_dir)


@pytest.fixture
def manifest(record: Record) -> Manifest:
    value = {**record(), "model": "minilm/v1", "aliases": ["ü"]}
    return Manifest(
        builder="gpu-1",
        version="0.1.0",
        environments={"0123456789abcdef": {"torch": "2.13"}},
        entries=(ManifestEntry.read(value, "", Reading()),),
        generated_at="2027-01-15T08:00:00.000Z",
    )


def test_what_was_written_is_read_and_its_signature_holds(
    tmp_path: Path, manifest: Manifest, key: SigningKey
) -> None:
    written = write_manifest(tmp_path, manifest, key)
    [found], problems = read_manifests(tmp_path)
    assert problems == ()
    assert found.path == tmp_path / "manifests" / "gpu-1.json"
    assert found.manifest == written == replace(manifest, generation=1)
    assert found.signed_by([key.public]) == key.keyid
    assert found.signatures[0]["keyid"] == key.keyid
    body = json.loads(found.path.read_bytes())
    assert body.keys() == {"signatures", "signed"}
    assert canonical_json(body["signed"]) == canonical_json(found.signed)
    assert found.path.stat().st_mode & 0o777 == 0o644


def test_a_changed_or_foreign_manifest_is_not_signed(
    tmp_path: Path, manifest: Manifest, key: SigningKey
) -> None:
    other = load_or_create_key(tmp_path / "other")
    write_manifest(tmp_path, manifest, key)
    path = manifest_path(tmp_path, "gpu-1")
    assert read_manifest(path).signed_by([other.public]) is None
    assert read_manifest(path).signed_by([]) is None
    assert read_manifest(path).signed_by([other.public, key.public]) == key.keyid
    path.write_bytes(path.read_bytes().replace(b"minilm/v1", b"minilm/v2"))
    assert read_manifest(path).signed_by([key.public]) is None


def test_the_generation_only_rises(tmp_path: Path, manifest: Manifest, key: SigningKey) -> None:
    assert write_manifest(tmp_path, manifest, key).generation == 1
    assert write_manifest(tmp_path, manifest, key).generation == 2
    assert write_manifest(tmp_path, replace(manifest, generation=41), key).generation == 42
    assert write_manifest(tmp_path, manifest, key).generation == 43
    # Another builder counts for itself.
    assert write_manifest(tmp_path, replace(manifest, builder="gpu-2"), key).generation == 1
    # A damaged own file, whose generation nobody knows any more.
    manifest_path(tmp_path, "gpu-1").write_bytes(b"{")
    risen = write_manifest(tmp_path, manifest, key).generation
    assert risen > 43
    assert write_manifest(tmp_path, manifest, key).generation == risen + 1


def test_a_path_of_this_machine_is_never_written(
    tmp_path: Path, manifest: Manifest, key: SigningKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    for text in ("/etc/passwd", "built below /home/ann"):
        [entry] = manifest.entries
        bad = replace(manifest, entries=(replace(entry, reason=text),))
        with pytest.raises(RuntimeError, match="a path of this machine"):
            write_manifest(tmp_path, bad, key)
    assert not (tmp_path / "manifests").exists()


@pytest.mark.parametrize("builder", ["", ".hidden", "a/b", "..", "a b", "ü", "x" * 200])
def test_a_builder_is_a_file_name(tmp_path: Path, builder: str) -> None:
    with pytest.raises(ConfigError, match="letters, digits"):
        manifest_path(tmp_path, builder)


def test_a_cache_dir_without_manifests_has_none(tmp_path: Path) -> None:
    assert read_manifests(tmp_path) == ((), ())
    assert read_manifests(tmp_path / "none") == ((), ())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is no JSON"),
        (b"{", "is no JSON"),
        (b"\xff\xfe", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b'{"signatures": [], "signed": NaN}', "NaN is no JSON number"),
        (b'{"signatures": [], "signed": ' + b"9" * 5000 + b"}", "is no JSON"),
        (b"null", "is no manifest"),
        (b'{"signed": {}}', "is no manifest"),
        (b'{"signatures": [], "signed": {}, "more": 1}', "is no manifest"),
        (b'{"signatures": 5, "signed": {}}', "signatures: found 5"),
        (b'{"signatures": [{"keyid": 1}], "signed": {}}', r"signatures\[0\]\.sig: found None"),
        (b'{"signatures": [], "signed": {"format": 7}}', "format: found 7"),
        (b" " * 5000, "is larger than 4,000 bytes"),
    ],
)
def test_a_bad_manifest_is_refused_and_the_others_are_read(
    tmp_path: Path, manifest: Manifest, key: SigningKey, content: bytes, told: str
) -> None:
    write_manifest(tmp_path, manifest, key)
    bad = tmp_path / "manifests" / "bad.json"
    bad.write_bytes(content)
    limit_bytes = 4000 if told.startswith("is larger") else 1_000_000
    good, [problem] = read_manifests(tmp_path, limit_bytes=limit_bytes)
    assert [found.manifest.builder for found in good] == ["gpu-1"]
    assert problem.startswith(f"{bad}: ")
    with pytest.raises(ManifestUnavailable, match=told):
        read_manifest(bad, limit_bytes=limit_bytes)


def test_a_manifest_under_anothers_name_is_refused(
    tmp_path: Path, manifest: Manifest, key: SigningKey
) -> None:
    write_manifest(tmp_path, manifest, key)
    path = manifest_path(tmp_path, "gpu-1")
    path.rename(path.with_name("gpu-2.json"))
    assert "under another's name" in read_manifests(tmp_path)[1][0]


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    directory = tmp_path / "manifests"
    directory.mkdir()
    os.mkfifo(directory / "pipe.json")
    (directory / "folder.json").mkdir()
    (directory / "broken.json").symlink_to("nowhere")
    good, problems = read_manifests(tmp_path)
    assert good == ()
    assert len(problems) == 3


def test_hidden_and_other_files_are_passed_over(tmp_path: Path) -> None:
    directory = tmp_path / "manifests"
    directory.mkdir()
    for name in (".prewarm-ab.part", ".x.json", "notes.txt"):
        (directory / name).write_bytes(b"{")
    assert read_manifests(tmp_path) == ((), ())


def test_unreadable_directory_and_file_are_problems(
    open_path: Path,
    manifest: Manifest,
    key: SigningKey,
    unprivileged: Unprivileged,
) -> None:
    write_manifest(open_path, manifest, key)
    manifest_path(open_path, "gpu-1").chmod(0)
    with unprivileged():
        assert "Permission denied" in read_manifests(open_path)[1][0]
    (open_path / "manifests").chmod(0)
    with unprivileged():
        assert "Permission denied" in read_manifests(open_path)[1][0]
    (open_path / "manifests").chmod(0o755)


def test_a_cache_dir_that_cannot_be_written_is_told(
    tmp_path: Path, manifest: Manifest, key: SigningKey
) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotWritable):
        write_manifest(tmp_path / "file" / "cache", manifest, key)


@pytest.mark.parametrize("module", [manifest_files, whole_file])
def test_killed_at_any_line_leaves_a_whole_manifest(
    tmp_path: Path,
    manifest: Manifest,
    key: SigningKey,
    run_until_killed: RunUntilKilled,
    module: object,
) -> None:
    write_manifest(tmp_path, manifest, key)
    line, killed = 0, True
    before = 1
    while killed:
        line += 1
        killed = run_until_killed(
            lambda: write_manifest(tmp_path, manifest, key),
            module.__file__,  # type: ignore[attr-defined]
            line,
        )
        [found], problems = read_manifests(tmp_path)
        assert problems == ()
        assert found.signed_by([key.public]) == key.keyid
        assert found.manifest.generation >= before
        before = found.manifest.generation
    assert line > 10


def test_the_time_of_a_manifest_never_falls_when_a_clock_is_put_back(
    tmp_path: Path, manifest: Manifest, key: SigningKey
) -> None:
    write_manifest(tmp_path, manifest, key)

    written = write_manifest(
        tmp_path, replace(manifest, generated_at="2026-01-15T08:00:00.000Z"), key
    )

    assert (written.generated_at, written.generation) == (manifest.generated_at, 2)
