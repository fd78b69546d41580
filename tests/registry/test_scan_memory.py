from __future__ import annotations

import os
import time

import pytest

from prewarm.registry import completeness
from prewarm.registry.scan import scan_registry
from prewarm.registry.scan_memory import ScanMemory


@pytest.fixture
def scan(registry, minilm, monkeypatch):
    """Return a scan with one memory; it returns the states by name and the headers it read."""
    registry.write("prewarm.toml", minilm.replace("minilm/*", "**"))
    memory, read = ScanMemory(), []
    real = completeness.read_header
    monkeypatch.setattr(
        completeness, "read_header", lambda path: read.append(path.parent.name) or real(path)
    )

    def look(later_s: float = 60.0):
        read.clear()
        now_s = time.time() + later_s
        found = scan_registry(registry.root, settle_s=0.0, now_s=now_s, memory=memory)
        return {one.checkpoint.name: one.completeness.state for one in found}, list(read)

    return look


def test_what_did_not_change_is_not_read_again(registry, scan):
    registry.bert("a")
    registry.bert("b")
    whole = {"a": "complete", "b": "complete"}
    assert scan() == (whole, ["a", "b"])
    assert scan() == (whole, [])


def test_a_file_that_was_cut_is_read_again_and_again_until_it_is_whole(registry, scan):
    path = registry.bert("a") / "model.safetensors"
    scan()
    size = path.stat().st_size
    os.truncate(path, size - 1)
    assert scan() == ({"a": "broken"}, ["a"])
    assert scan() == ({"a": "broken"}, ["a"])


def test_a_file_of_the_same_size_and_time_is_another_by_its_change(registry, scan):
    path = registry.bert("a") / "model.safetensors"
    scan()
    before = path.stat()
    path.write_bytes(bytes(before.st_size))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert scan() == ({"a": "broken"}, ["a"])


def test_a_file_that_is_gone_is_missed(registry, scan, safetensors):
    registry.bert("a")
    part = safetensors({"w": ("F32", [4])})
    registry.write("a/model-00001-of-00002.safetensors", part)
    other = registry.write("a/model-00002-of-00002.safetensors", part)
    assert scan()[0] == {"a": "complete"}
    other.unlink()
    assert scan()[0] == {"a": "broken"}


def test_what_changed_a_moment_ago_is_not_remembered(registry, scan):
    registry.bert("a")
    assert scan(later_s=0.0) == ({"a": "complete"}, ["a"])
    assert scan(later_s=0.0) == ({"a": "complete"}, ["a"])


def test_what_is_gone_is_forgotten(registry, scan):
    path = registry.bert("a")
    scan()
    path.rename(registry.root / "b")
    assert scan() == ({"b": "complete"}, ["b"])
    (registry.root / "b").rename(path)
    assert scan() == ({"a": "complete"}, ["a"])
