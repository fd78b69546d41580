from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from prewarm.store import quarantine as module
from prewarm.store.quarantine import Note, Quarantine, move_to_quarantine, read_quarantine

Unprivileged = Callable[[], AbstractContextManager[None]]
RunUntilKilled = Callable[[Callable[[], object], str, int], bool]

CONTENT = b"damaged" * 100


@pytest.fixture
def directory(state_dir: Path) -> Path:
    return state_dir / "quarantine"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "bundle"
    path.write_bytes(CONTENT)
    return path


def note(digit: str = "a") -> Note:
    return Note(digit * 64, "it is damaged", "2027-01-15T08:00:00.000Z", ("m1",), ("k" * 64,))


def kept(directory: Path) -> list[str]:
    return sorted(path.name[0] + path.name[64:] for path in directory.iterdir())


def read_note(directory: Path, digit: str = "a") -> dict[str, object]:
    told: dict[str, object] = json.loads((directory / f"{digit * 64}.json").read_text())
    return told


def test_the_file_is_there_with_its_note(bundle: Path, state_dir: Path, directory: Path) -> None:
    assert move_to_quarantine(bundle, state_dir, note()) is None

    assert not bundle.exists()
    assert (directory / f"{'a' * 64}.tar.zst").read_bytes() == CONTENT
    assert read_note(directory) == {
        "sha256": "a" * 64,
        "reason": "it is damaged",
        "at": "2027-01-15T08:00:00.000Z",
        "models": ["m1"],
        "build_keys": ["k" * 64],
        "size_bytes": len(CONTENT),
        "not_kept": None,
    }
    assert read_quarantine(state_dir) == Quarantine(directory, 1, len(CONTENT))


def test_nothing_is_counted_where_nothing_was_set_aside(state_dir: Path, directory: Path) -> None:
    assert read_quarantine(state_dir) == Quarantine(directory, 0, 0)


def test_a_bundle_that_is_gone_leaves_no_note(tmp_path: Path, state_dir: Path) -> None:
    assert move_to_quarantine(tmp_path / "bundle", state_dir, note()) is None
    assert read_quarantine(state_dir).bundles == 0


def test_another_file_system_gets_a_whole_copy(bundle: Path, tiny_disk: Path) -> None:
    assert move_to_quarantine(bundle, tiny_disk, note()) is None

    assert not bundle.exists()
    assert (tiny_disk / "quarantine" / f"{'a' * 64}.tar.zst").read_bytes() == CONTENT
    assert kept(tiny_disk / "quarantine") == ["a.json", "a.tar.zst"]


def test_a_full_disk_keeps_the_note_alone(bundle: Path, tiny_disk: Path) -> None:
    bundle.write_bytes(bytes(100_000))

    assert move_to_quarantine(bundle, tiny_disk, note()) is None

    assert not bundle.exists()
    assert kept(tiny_disk / "quarantine") == ["a.json"]
    told = read_note(tiny_disk / "quarantine")
    assert "no space left (100,000 bytes needed, " in str(told["not_kept"])
    assert read_quarantine(tiny_disk).size_bytes == 0


def test_no_room_even_for_a_note_leaves_no_damaged_file(bundle: Path, tiny_disk: Path) -> None:
    (tiny_disk / "filler").write_bytes(bytes(os.statvfs(tiny_disk).f_bavail * 4096))

    assert move_to_quarantine(bundle, tiny_disk, note()) is None

    assert not bundle.exists()


def test_what_is_larger_than_the_bound_leaves_a_note_and_takes_nobody_s_place(
    bundle: Path, state_dir: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST_BYTES", len(CONTENT))
    move_to_quarantine(bundle, state_dir, note("a"))
    bundle.write_bytes(CONTENT + b"!")

    assert move_to_quarantine(bundle, state_dir, note("b")) is None

    assert not bundle.exists()
    assert kept(directory) == ["a.json", "a.tar.zst", "b.json"]
    assert f"larger than the {len(CONTENT)} bytes" in str(read_note(directory, "b")["not_kept"])
    assert read_quarantine(state_dir) == Quarantine(directory, 2, len(CONTENT))


def age(directory: Path, digit: str, second: int) -> None:
    for path in directory.glob(f"{digit}*"):
        os.utime(path, (second, second))


def test_the_oldest_make_room_for_the_number(
    bundle: Path, state_dir: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BUNDLES", 2)
    for second, digit in enumerate("cab"):
        bundle.write_bytes(CONTENT)
        move_to_quarantine(bundle, state_dir, note(digit))
        age(directory, digit, second)

    assert kept(directory) == ["a.json", "a.tar.zst", "b.json", "b.tar.zst"]


def test_the_oldest_make_room_for_the_size(
    bundle: Path, state_dir: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST_BYTES", 3 * len(CONTENT))
    for second, (digit, times) in enumerate([("c", 1), ("a", 1), ("b", 2)]):
        bundle.write_bytes(CONTENT * times)
        move_to_quarantine(bundle, state_dir, note(digit))
        age(directory, digit, second)

    assert kept(directory) == ["a.json", "a.tar.zst", "b.json", "b.tar.zst"]


def test_one_that_comes_again_takes_its_own_place_alone(
    bundle: Path, state_dir: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BUNDLES", 2)
    for digit, content in (("a", b"1"), ("b", b"2"), ("a", b"3")):
        bundle.write_bytes(content)
        move_to_quarantine(bundle, state_dir, note(digit))

    assert kept(directory) == ["a.json", "a.tar.zst", "b.json", "b.tar.zst"]
    assert (directory / f"{'a' * 64}.tar.zst").read_bytes() == b"3"


def make_directory(path: Path) -> None:
    path.mkdir()
    (path / "file").touch()


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_link(path: Path) -> None:
    path.symlink_to(path.parent / "target")
    (path.parent / "target").write_bytes(b"somebody's")


@pytest.mark.parametrize("make", [make_directory, make_pipe, make_link])
def test_what_is_no_file_is_removed_and_noted(
    bundle: Path, state_dir: Path, directory: Path, make: Callable[[Path], None]
) -> None:
    bundle.unlink()
    make(bundle)

    assert move_to_quarantine(bundle, state_dir, note()) is None

    assert not os.path.lexists(bundle)
    assert "something else than a file" in str(read_note(directory)["not_kept"])
    if make is make_link:
        assert (bundle.parent / "target").read_bytes() == b"somebody's"


def test_a_quarantine_that_cannot_be_made_keeps_no_damaged_file_in_place(
    bundle: Path, state_dir: Path, directory: Path
) -> None:
    state_dir.mkdir()
    directory.touch()

    assert move_to_quarantine(bundle, state_dir, note()) is None

    assert not bundle.exists()
    assert read_quarantine(state_dir).bundles is None


def test_a_bundle_that_this_user_cannot_take_away_is_told(
    open_path: Path, unprivileged: Unprivileged
) -> None:
    bundle = open_path / "cache" / "bundle"
    bundle.parent.mkdir()
    bundle.write_bytes(CONTENT)
    bundle.parent.chmod(0o555)
    (open_path / "state").mkdir(mode=0o777)
    (open_path / "state").chmod(0o777)

    with unprivileged():
        problem = move_to_quarantine(bundle, open_path / "state", note())

    assert problem is not None
    assert "cannot be removed (Permission denied); remove it by hand" in problem
    assert bundle.read_bytes() == CONTENT


def test_killed_at_any_line_the_file_is_whole_in_one_place_and_the_next_try_ends_it(
    tmp_path: Path, tiny_disk: Path, run_until_killed: RunUntilKilled
) -> None:
    line = 0
    killed = True
    while killed:
        line += 1
        state_dir = tiny_disk / str(line)  # another file system, so that it is copied
        bundle = tmp_path / "bundle"
        bundle.write_bytes(CONTENT)

        def work(bundle: Path = bundle, state_dir: Path = state_dir) -> object:
            return move_to_quarantine(bundle, state_dir, note())

        killed = run_until_killed(work, module.__file__, line)
        target = state_dir / "quarantine" / f"{'a' * 64}.tar.zst"
        assert bundle.exists() or target.read_bytes() == CONTENT
        assert work() is None
        assert not bundle.exists()
        assert target.read_bytes() == CONTENT
        assert kept(target.parent) == ["a.json", "a.tar.zst"]
        for path in target.parent.iterdir():
            path.unlink()
    assert line > 20
