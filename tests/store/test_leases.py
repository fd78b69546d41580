from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from prewarm.store.leases import (
    DEAD_AFTER_S,
    leased,
    leases_directory,
    mark_used,
    read_traces,
)

A, B = "a" * 64, "b" * 64


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    leases_directory(tmp_path / "cache").mkdir(parents=True)
    return tmp_path / "cache"


def now_s(cache_dir: Path) -> float:
    """Return the time by the clock that gives files their times."""
    probe = cache_dir / "clock"
    probe.touch()
    return probe.stat().st_mtime


def test_a_lease_is_there_while_the_bundle_is_read(cache_dir: Path) -> None:
    with leased([(cache_dir, A), (cache_dir, A)]):
        found = read_traces(cache_dir, now_s=now_s(cache_dir), present=[A, B])
        assert found.held == {A}
        assert len(list(leases_directory(cache_dir).iterdir())) == 2
    assert list(leases_directory(cache_dir).iterdir()) == []
    with pytest.raises(ValueError, match="stop"), leased([(cache_dir, A)]):
        raise ValueError("stop")
    assert read_traces(cache_dir, now_s=now_s(cache_dir), present=[A]).held == frozenset()


@pytest.mark.parametrize("off_s", [DEAD_AFTER_S + 1, -DEAD_AFTER_S - 1])
def test_a_lease_far_from_the_present_is_a_dead_readers(cache_dir: Path, off_s: float) -> None:
    with leased([(cache_dir, A)]):
        [lease] = leases_directory(cache_dir).iterdir()
        now = now_s(cache_dir)
        os.utime(lease, (now - off_s, now - off_s))
        found = read_traces(cache_dir, now_s=now, present=[A])
    assert (found.held, found.dead) == (frozenset(), (lease,))


def test_a_mark_has_the_time_of_the_last_start(cache_dir: Path) -> None:
    mark_used([(cache_dir, A), (cache_dir, B)])
    os.utime(leases_directory(cache_dir) / f"{A}.used", (1000, 1000))
    assert read_traces(cache_dir, now_s=5000, present=[A, B]).last_use_s(A) == 1000
    mark_used([(cache_dir, A)])
    now = now_s(cache_dir)
    found = read_traces(cache_dir, now_s=now, present=[A])
    assert now - 60 < found.last_use_s(A) <= now
    assert found.last_use_s(B) == 0
    assert found.dead == (leases_directory(cache_dir) / f"{B}.used",)
    assert read_traces(cache_dir, now_s=2000, present=[A]).last_use_s(A) == 2000


def test_without_the_directory_nothing_is_left_and_nothing_fails(tmp_path: Path) -> None:
    with leased([(tmp_path, A)]):
        mark_used([(tmp_path, A)])
        assert read_traces(tmp_path, now_s=0, present=[A]).held == frozenset()
    assert list(tmp_path.iterdir()) == []


def test_who_may_not_write_reads_without_a_trace(
    open_path: Path, unprivileged: Callable[[], AbstractContextManager[None]]
) -> None:
    directory = leases_directory(open_path)
    directory.mkdir()
    directory.chmod(0o555)
    with unprivileged(), leased([(open_path, A)]):
        mark_used([(open_path, A)])
        assert list(directory.iterdir()) == []
    directory.chmod(0o1777)
    with unprivileged(), leased([(open_path, A)]):
        assert read_traces(open_path, now_s=now_s_of(directory), present=[A]).held == {A}


def now_s_of(directory: Path) -> float:
    return directory.stat().st_mtime


def test_what_a_stranger_put_there_is_neither_followed_nor_counted(
    cache_dir: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    directory = leases_directory(cache_dir)
    (directory / f"{A}.used").symlink_to(victim)
    (directory / f"{B}.{'0' * 16}.lease").mkdir()
    os.mkfifo(directory / f"{B}.used")
    (directory / "README").touch()
    mark_used([(cache_dir, A), (cache_dir, B)])
    assert not victim.exists()
    found = read_traces(cache_dir, now_s=now_s(cache_dir), present=[A, B])
    assert (found.held, dict(found.used_s), found.dead) == (frozenset(), {}, ())


def test_others_may_read_but_not_fill_what_is_left(cache_dir: Path) -> None:
    before = os.umask(0)
    try:
        mark_used([(cache_dir, A)])
    finally:
        os.umask(before)
    [mark] = leases_directory(cache_dir).iterdir()
    assert stat.S_IMODE(mark.stat().st_mode) == 0o644
