from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from prewarm.errors import NoSpace, NotWritable
from prewarm.store import whole_file as module
from prewarm.store.whole_file import (
    is_part,
    make_directory,
    publish_file,
    remove_parts,
    whole_file,
    write_errors,
    write_whole,
)

RunUntilKilled = Callable[[Callable[[], object], str, int], bool]
Unprivileged = Callable[[], AbstractContextManager[None]]

OLD, NEW = b"old" * 1000, b"new" * 5000

_WRITER = """
import hashlib, sys
from pathlib import Path
from prewarm.store.whole_file import publish_file, write_whole
where = Path(sys.argv[1])
for number in range(100_000):
    body = bytes([number % 251]) * (50_000 + number)
    data = hashlib.sha256(body).hexdigest().encode() + body
    write_whole(where / f"written-{number % 3}", data)
    (where / ".source").write_bytes(data)
    publish_file(where / ".source", where / "sub" / f"published-{number % 3}")
    print(number, flush=True)
"""


def _assert_whole(path: Path) -> None:
    data = path.read_bytes()
    assert hashlib.sha256(data[64:]).hexdigest().encode() == data[:64], path


def _visible(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file() and path.name[0] != "."]


@pytest.mark.parametrize("unnamed", [True, False], ids=["O_TMPFILE", "hidden"])
def test_killed_at_any_line_leaves_old_or_new(
    tmp_path: Path, run_until_killed: RunUntilKilled, monkeypatch: pytest.MonkeyPatch, unnamed: bool
) -> None:
    if not unnamed:
        monkeypatch.delattr(os, "O_TMPFILE")
    path = tmp_path / "file"
    seen = set()
    line = 0
    killed = True
    while killed:
        line += 1
        path.write_bytes(OLD)
        killed = run_until_killed(lambda: write_whole(path, NEW), module.__file__, line)
        seen.add(path.read_bytes())
        leftovers = [name for name in os.listdir(tmp_path) if name != "file"]
        assert all(is_part(name) for name in leftovers)
        for name in leftovers:
            if unnamed:
                assert (tmp_path / name).read_bytes() == NEW
            (tmp_path / name).unlink()
    assert line > 20
    assert seen == {OLD, NEW}


def test_killed_at_any_line_publishes_whole_or_not(
    tmp_path: Path, run_until_killed: RunUntilKilled
) -> None:
    source, target = tmp_path / "source", tmp_path / "a" / "b" / "target"
    line = 0
    killed = True
    while killed:
        line += 1
        source.write_bytes(NEW)
        target.unlink(missing_ok=True)
        killed = run_until_killed(lambda: publish_file(source, target), module.__file__, line)
        assert source.exists() is not target.exists()
        if target.exists():
            assert target.read_bytes() == NEW
    assert target.exists()


def test_every_visible_file_is_whole_after_kill_9_of_a_writing_loop(tmp_path: Path) -> None:
    chance = random.Random(7)
    for _ in range(8):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        # Somewhere in the next write after a random one.
        for _ in range(chance.randint(1, 40)):
            assert writer.stdout.readline()
        writer.kill()
        writer.communicate()
        for path in _visible(tmp_path):
            _assert_whole(path)
    assert _visible(tmp_path)


def test_write_whole_replaces_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for data in (OLD, NEW, b""):
        write_whole(path, data)
        assert path.read_bytes() == data
    assert os.listdir(tmp_path) == ["file"]


def test_mode_does_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_whole(tmp_path / "open", b"")
        write_whole(tmp_path / "closed", b"", mode=0o600)
        (tmp_path / "source").write_bytes(b"")
        publish_file(tmp_path / "source", tmp_path / "a" / "b" / "target")
    finally:
        os.umask(before)
    modes = {
        path.relative_to(tmp_path).as_posix(): path.stat().st_mode & 0o777
        for path in tmp_path.rglob("*")
    }
    assert modes == {
        "open": 0o644,
        "closed": 0o600,
        "a": 0o755,
        "a/b": 0o755,
        "a/b/target": 0o644,
    }


def test_failing_block_leaves_the_old_file_and_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    with pytest.raises(ZeroDivisionError), whole_file(path) as file:
        file.write(NEW)
        raise ZeroDivisionError
    assert path.read_bytes() == OLD
    assert os.listdir(tmp_path) == ["file"]


def test_full_disk_says_path_and_bytes_and_keeps_the_old_file(tiny_disk: Path) -> None:
    path = tiny_disk / "file"
    write_whole(path, OLD)
    with pytest.raises(NoSpace) as caught:
        write_whole(path, bytes(200_000))
    assert str(path) in str(caught.value)
    assert "200,000 bytes needed" in str(caught.value)
    assert " free" in str(caught.value)
    assert "prewarm gc" in str(caught.value)
    assert path.read_bytes() == OLD
    assert os.listdir(tiny_disk) == ["file"]


def test_publishing_to_a_full_disk_keeps_the_source(tiny_disk: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(200_000))
    with pytest.raises(NoSpace):
        publish_file(source, tiny_disk / "a" / "target")
    assert source.stat().st_size == 200_000
    assert _visible(tiny_disk) == []


def test_publish_file_copies_across_file_systems(tiny_disk: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(NEW)
    publish_file(source, tiny_disk / "a" / "target")
    assert (tiny_disk / "a" / "target").read_bytes() == NEW
    assert not source.exists()


def test_read_only_disk_is_told(tiny_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    with pytest.raises(NotWritable, match=r"Read-only file system.*choose another"):
        write_whole(tiny_disk / "file", b"")
    with pytest.raises(NotWritable, match="Read-only file system"):
        make_directory(tiny_disk / "a" / "b")


def test_directory_of_another_user_is_told(open_path: Path, unprivileged: Unprivileged) -> None:
    open_path.chmod(0o555)
    with unprivileged(), pytest.raises(NotWritable, match=r"user \d+ \(Permission denied\)"):
        write_whole(open_path / "file", b"")
    open_path.chmod(0o755)


def test_path_below_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotWritable, match="Not a directory"):
        write_whole(tmp_path / "file" / "below", b"")
    with pytest.raises(NotWritable, match=f"make {tmp_path / 'file'} a directory"):
        make_directory(tmp_path / "file" / "below")


def test_missing_directory_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotWritable, match="No such file"):
        write_whole(tmp_path / "none" / "file", b"")


def test_quota_is_told_as_no_space(tmp_path: Path) -> None:
    import errno

    with pytest.raises(NoSpace, match="quota"), write_errors(tmp_path / "file"):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")


def test_make_directory_keeps_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o700)
    make_directory(tmp_path / "a" / "b")
    make_directory(tmp_path / "a" / "b")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o755


def test_a_new_directory_is_synced_into_the_one_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    make_directory(tmp_path / "a" / "b")
    assert synced == [str(tmp_path), str(tmp_path / "a")]


def test_what_dead_writers_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    kept = [tmp_path / ".prewarm-x", tmp_path / "x.part", tmp_path / ".other.part"]
    for path in (tmp_path / ".prewarm-00.part", *kept):
        path.touch()
    (tmp_path / ".prewarm-11.part").mkdir()  # not ours to remove
    remove_parts(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([*kept, tmp_path / ".prewarm-11.part"])
    remove_parts(tmp_path / "none")
