from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from prewarm.registry.presence import Presence, registry_is_there
from prewarm.store.root_seen import (
    ROOT_SEEN_NAME,
    presence_of,
    read_root_seen,
    remember_root,
)


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    path = tmp_path / "registry"
    path.mkdir()
    return path


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    path.mkdir()
    return path


def test_nothing_is_remembered_at_first(registry: Path, state_dir: Path) -> None:
    assert read_root_seen(state_dir) is None
    assert presence_of(registry, state_dir).is_there


def test_a_root_is_remembered_for_the_next_process(registry: Path, state_dir: Path) -> None:
    found = registry_is_there(registry, None)
    remember_root(state_dir, found)
    assert read_root_seen(state_dir) == found.seen
    written = (state_dir / ROOT_SEEN_NAME).stat()
    remember_root(state_dir, found)
    assert (state_dir / ROOT_SEEN_NAME).stat().st_ino == written.st_ino, "it is no news"


def test_an_empty_mount_point_is_told_with_the_way_out(registry: Path, state_dir: Path) -> None:
    found = registry_is_there(registry, None)
    assert found.seen is not None
    mounted = replace(found.seen, mount_point=str(registry), inode=1)
    remember_root(state_dir, Presence("there", None, mounted))
    again = presence_of(registry, state_dir)
    assert again.state == "unmounted"
    assert again.reason is not None
    assert again.reason.endswith(f"for good now, remove {state_dir / ROOT_SEEN_NAME}")
    remember_root(state_dir, again)
    assert read_root_seen(state_dir) == mounted, "a look that found nothing is not remembered"


@pytest.mark.parametrize("text", ["", "{", "[]", json.dumps({"path": "/"}), "[" * 100_000])
def test_a_file_that_cannot_be_read_is_nothing(state_dir: Path, text: str) -> None:
    (state_dir / ROOT_SEEN_NAME).write_text(text)
    assert read_root_seen(state_dir) is None
