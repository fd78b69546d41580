from __future__ import annotations

import hashlib
import os
import shutil

import pytest

from prewarm.errors import RegistryError
from prewarm.registry import content
from prewarm.registry.checkpoint import list_checkpoint
from prewarm.registry.content import content_digest, quick_content_digest


class MemoryCache:
    """A cache that counts what it was asked."""

    def __init__(self) -> None:
        self.rows: dict[tuple[object, ...], str] = {}
        self.reads = 0

    def file_digest(self, path, *, size_bytes, mtime_ns, ctime_ns, inode):
        return self.rows.get((str(path), size_bytes, mtime_ns, ctime_ns, inode))

    def put_file_digest(self, path, *, size_bytes, mtime_ns, ctime_ns, inode, digest):
        self.reads += 1
        self.rows[(str(path), size_bytes, mtime_ns, ctime_ns, inode)] = digest


def listed(registry, name: str = "m"):
    return list_checkpoint(registry.root / name, name=name, root=registry.root)


def test_neither_place_nor_time_counts(registry):
    registry.bert("m")
    first = content_digest(listed(registry))
    shutil.copytree(registry.root / "m", registry.root / "deep/other")
    for file in (registry.root / "deep/other").iterdir():
        os.utime(file, (1, 1))
    assert content_digest(listed(registry, "deep/other")) == first


def test_only_what_is_really_read_is_told_and_whoever_asks_may_end_it(registry):
    class Enough(Exception):
        pass

    def stop():
        raise Enough

    registry.bert("m")
    cache, pieces = MemoryCache(), []
    with pytest.raises(Enough):
        content_digest(listed(registry), cache, reading=stop)
    content_digest(listed(registry), cache, reading=lambda: pieces.append(1))
    assert pieces
    content_digest(listed(registry), cache, reading=stop)


def test_a_changed_byte_counts(registry):
    registry.bert("m")
    first = content_digest(listed(registry))
    registry.bert("m", fill=2)
    assert content_digest(listed(registry)) != first


def test_a_renamed_file_counts(registry):
    registry.bert("m")
    first = content_digest(listed(registry))
    (registry.root / "m/config.json").rename(registry.root / "m/config2.json")
    assert content_digest(listed(registry)) != first


def test_the_declaration_does_not_count(registry, minilm):
    registry.bert("m")
    first = content_digest(listed(registry))
    registry.write("m/prewarm.toml", minilm)
    assert content_digest(listed(registry)) == first


def test_unchanged_files_are_read_once(registry):
    registry.bert("m")
    cache = MemoryCache()
    first = content_digest(listed(registry), cache)
    assert cache.reads == 2
    assert content_digest(listed(registry), cache) == first
    assert cache.reads == 2
    registry.write("m/config.json", '{"changed": 1}')
    assert content_digest(listed(registry), cache) != first
    assert cache.reads == 3


def test_a_change_that_keeps_size_and_time_is_seen(registry):
    path = registry.bert("m") / "model.safetensors"
    cache = MemoryCache()
    first = content_digest(listed(registry), cache)
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert content_digest(listed(registry), cache) != first


def test_blobs_named_by_their_sha256_are_not_read(registry):
    content = b"weights" * 100
    sha256 = hashlib.sha256(content).hexdigest()
    hub = "models--org--name"
    registry.write(f"{hub}/blobs/{sha256}", content)
    registry.link(f"{hub}/snapshots/abc/model.bin", f"../../blobs/{sha256}")
    registry.write("plain/model.bin", content)
    cache = MemoryCache()
    digest = content_digest(listed(registry, f"{hub}/snapshots/abc"), cache)
    assert cache.reads == 0
    assert digest == content_digest(listed(registry, "plain"), cache)


def test_a_file_that_vanished(registry):
    registry.bert("m")
    checkpoint = listed(registry)
    (registry.root / "m/config.json").unlink()
    with pytest.raises(
        RegistryError, match=r"^m: config\.json: vanished while it was read"
    ) as error:
        content_digest(checkpoint)
    assert error.value.code == "changed"


def test_a_file_that_changed_since_it_was_listed(registry):
    registry.bert("m")
    checkpoint = listed(registry)
    registry.write("m/config.json", "{}")
    cache = MemoryCache()
    with pytest.raises(RegistryError, match="changed while it was read"):
        content_digest(checkpoint, cache)
    assert cache.rows == {}


def test_a_quick_look_takes_known_digests_and_reads_no_large_file(registry, monkeypatch):
    registry.bert("m")
    found = listed(registry)
    whole = content_digest(found)
    known = {file.name: hashlib.sha256(file.path.read_bytes()).hexdigest() for file in found.files}

    assert quick_content_digest(found, lambda file: None) == whole
    monkeypatch.setattr(content, "QUICK_BYTES", 0)
    assert quick_content_digest(found, lambda file: None) is None
    assert quick_content_digest(found, lambda file: known[file.name]) == whole
    assert quick_content_digest(found, lambda file: "0" * 64) != whole
