"""Room for a build: told before it begins, on real small disks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from prewarm.build import room as module
from prewarm.build.room import room_for_build
from prewarm.config import Settings
from prewarm.store.database import DATABASE_NAME, Database


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(None, tmp_path / "cache", tmp_path / "state", "test")


@pytest.fixture
def database(settings: Settings) -> Iterator[Database]:
    with Database(settings.state_dir / DATABASE_NAME) as opened:
        settings.cache_dir.mkdir()
        yield opened


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    path = tmp_path / "small"
    path.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=4m", "prewarm-test", str(path)]
    mounted = subprocess.run(argv, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"mounting is not permitted here: {mounted.stderr.decode().strip()}")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def add_bundle(database: Database, *, packed: int, unpacked: int) -> None:
    database.add_bundle(
        "a" * 64, build_key="k", architecture="a", environment_id="e", size_bytes=packed,
        unpacked_bytes=unpacked, files=1, record=None, at="2027-01-15T08:00:00.000Z",
    )  # fmt: skip


def told(settings: Settings, database: Database) -> str | None:
    return room_for_build(
        settings, database, least_scratch_bytes=1 << 20, least_cache_bytes=1 << 20
    )


def test_there_is_room_until_a_disk_is_full_and_again_when_it_is_not(
    settings: Settings, database: Database, small_disk: Path
) -> None:
    settings = replace(settings, cache_dir=small_disk)
    assert told(settings, database) is None
    (small_disk / "full").write_bytes(bytes(3_500_000))
    reason = told(settings, database)
    assert reason is not None
    assert f"cache_dir {small_disk} has " in reason
    assert reason.endswith(" MB free and a build needs 1 MB; free some space there")
    (small_disk / "full").unlink()
    assert told(settings, database) is None


def test_the_largest_bundle_so_far_says_what_a_build_needs(
    settings: Settings, database: Database, small_disk: Path
) -> None:
    on_cache, on_state = (
        replace(settings, cache_dir=small_disk),
        replace(settings, state_dir=small_disk),
    )
    add_bundle(database, packed=1 << 20, unpacked=1 << 20)
    assert told(on_cache, database) is None
    assert told(on_state, database) is None
    add_bundle(database, packed=1 << 20, unpacked=1 << 20)
    database.add_bundle(
        "b" * 64, build_key="k", architecture="a", environment_id="e", size_bytes=1 << 10,
        unpacked_bytes=2 << 20, files=1, record=None, at="2027-01-15T08:00:00.000Z",
    )  # fmt: skip
    assert told(on_cache, database) is None
    assert f"state_dir {small_disk} has " in (told(on_state, database) or "")


def test_a_disk_that_does_not_tell_its_size_is_no_reason(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unknown:
        f_blocks = f_bavail = f_frsize = 0

    monkeypatch.setattr(module.os, "statvfs", lambda _: Unknown())
    assert told(settings, database) is None


def test_by_default_a_gibibyte_of_scratch_is_wanted(
    settings: Settings, database: Database, small_disk: Path
) -> None:
    reason = room_for_build(replace(settings, state_dir=small_disk), database)
    assert reason is not None
    assert "needs 1,074 MB" in reason
    assert os.statvfs(small_disk).f_bavail > 0
