from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from prewarm.errors import StoreCorrupt
from prewarm.store import collect as module
from prewarm.store.bundle import bundle_path
from prewarm.store.collect import UNNAMED_NAME, Collected, collect, keep_bundle
from prewarm.store.manifest import Manifest, ManifestEntry, write_manifest
from prewarm.store.manifest_reading import Reading
from prewarm.store.signing import load_or_create_key

Record = Callable[..., dict[str, object]]
Publish = Callable[..., None]
Unprivileged = Callable[[], AbstractContextManager[None]]
RunUntilKilled = Callable[[Callable[[], object], str, int], bool]

NOW_S = 1_800_000_000.0
GRACE_S = 1000.0


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def publish(cache_dir: Path, state_dir: Path, record: Record) -> Publish:
    """Write a manifest of a builder that names the bundles of these digits."""

    def write(builder: str, *digits: str) -> None:
        entries = tuple(
            ManifestEntry.read(
                {**record(digit=digit), "model": digit, "aliases": []}, "", Reading()
            )
            for digit in digits
        )
        environments: dict[str, dict[str, str | None]] = {"0123456789abcdef": {}}
        at = "2027-01-15T08:00:00.000Z"
        manifest = Manifest(builder, "1", environments, entries, at)
        write_manifest(cache_dir, manifest, load_or_create_key(state_dir))

    return write


def _bundle(cache_dir: Path, digit: str, *, mtime_s: float = NOW_S - 1_000_000) -> Path:
    path = bundle_path(cache_dir, digit * 64)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"bundle")
    os.utime(path, (mtime_s, mtime_s))
    return path


def _collect(cache_dir: Path, state_dir: Path, after_s: float) -> Collected:
    return collect(cache_dir, state_dir, now_s=NOW_S + after_s, grace_s=GRACE_S)


def test_an_empty_cache_dir_has_nothing_to_collect(cache_dir: Path, state_dir: Path) -> None:
    assert _collect(cache_dir, state_dir, 0) == Collected()
    assert not state_dir.exists()


def test_what_any_manifest_names_stays(cache_dir: Path, state_dir: Path, publish: Publish) -> None:
    paths = [_bundle(cache_dir, digit) for digit in "abc"]
    publish("one", "a", "b")
    publish("two", "c")
    for after_s in (0, GRACE_S * 5, GRACE_S * 10):
        assert _collect(cache_dir, state_dir, after_s).bundles == ()
    assert all(path.exists() for path in paths)


def test_a_bundle_published_long_ago_still_gets_its_grace_when_it_is_dropped(
    cache_dir: Path, state_dir: Path, publish: Publish
) -> None:
    path = _bundle(cache_dir, "a")
    publish("one", "a")
    _collect(cache_dir, state_dir, 0)
    publish("one")
    for after_s in (10, 500, 10 + GRACE_S - 1):
        assert _collect(cache_dir, state_dir, after_s) == Collected(waiting=1)
    found = _collect(cache_dir, state_dir, 10 + GRACE_S)
    assert found == Collected(bundles=("a" * 64,), freed_bytes=6)
    assert not path.exists()
    assert _collect(cache_dir, state_dir, 5000) == Collected()


def test_naming_it_again_begins_a_new_period(
    cache_dir: Path, state_dir: Path, publish: Publish
) -> None:
    _bundle(cache_dir, "a")
    _collect(cache_dir, state_dir, 0)
    publish("one", "a")
    _collect(cache_dir, state_dir, 900)
    publish("one")
    assert _collect(cache_dir, state_dir, 1100).waiting == 1
    assert _collect(cache_dir, state_dir, 2099).waiting == 1
    assert _collect(cache_dir, state_dir, 2100).bundles == ("a" * 64,)


def test_publishing_or_keeping_it_again_begins_a_new_period(
    cache_dir: Path, state_dir: Path
) -> None:
    _bundle(cache_dir, "a")
    _collect(cache_dir, state_dir, 0)
    path = keep_bundle(cache_dir, "a" * 64, now_s=NOW_S + 900)
    assert _collect(cache_dir, state_dir, 1500).waiting == 1
    _bundle(cache_dir, "a", mtime_s=NOW_S + 1600)
    assert _collect(cache_dir, state_dir, 2500).waiting == 1
    assert _collect(cache_dir, state_dir, 2600).bundles == ("a" * 64,)
    with pytest.raises(
        StoreCorrupt, match=r"is gone \(No such file or directory\); build it again"
    ):
        keep_bundle(cache_dir, "a" * 64, now_s=NOW_S)
    assert not path.exists()


@pytest.mark.parametrize("note", [b"", b"[]", b'{"a": "x"}', b"\xff"])
def test_a_lost_or_damaged_note_removes_later_never_sooner(
    cache_dir: Path, state_dir: Path, note: bytes
) -> None:
    path = _bundle(cache_dir, "a")
    _collect(cache_dir, state_dir, 0)
    (state_dir / UNNAMED_NAME).write_bytes(note)
    assert _collect(cache_dir, state_dir, 5000).waiting == 1
    (state_dir / UNNAMED_NAME).unlink()
    assert _collect(cache_dir, state_dir, 6500).waiting == 1
    assert path.exists()
    assert _collect(cache_dir, state_dir, 7500).bundles == ("a" * 64,)


def test_a_clock_that_was_set_back_does_not_keep_a_bundle_for_ever(
    cache_dir: Path, state_dir: Path
) -> None:
    _bundle(cache_dir, "a", mtime_s=NOW_S + 1e9)
    assert _collect(cache_dir, state_dir, 1e8).waiting == 1
    assert _collect(cache_dir, state_dir, 0).waiting == 1
    assert _collect(cache_dir, state_dir, 1e9 + GRACE_S).bundles == ("a" * 64,)


@pytest.mark.parametrize("content", [b"{", b'{"signatures": [], "signed": {"format": 2}}'])
def test_a_manifest_that_cannot_be_read_stops_all_collecting(
    cache_dir: Path, state_dir: Path, publish: Publish, content: bytes
) -> None:
    path = _bundle(cache_dir, "a")
    publish("one")
    _collect(cache_dir, state_dir, 0)
    bad = cache_dir / "manifests" / "two.json"
    bad.write_bytes(content)
    found = _collect(cache_dir, state_dir, 5000)
    assert found.bundles == ()
    assert found.problem is not None
    assert str(bad) in found.problem
    assert path.exists()
    bad.unlink()
    assert _collect(cache_dir, state_dir, 5000).bundles == ("a" * 64,)


def test_leftovers_of_dead_writers_go_after_the_grace_period(
    cache_dir: Path, state_dir: Path, publish: Publish
) -> None:
    publish("one", "a")
    named = _bundle(cache_dir, "a")
    old, fresh = NOW_S - GRACE_S, NOW_S - GRACE_S + 1
    leftovers = [cache_dir / "manifests", cache_dir, cache_dir / "bundles/sha256", named.parent]
    for folder in leftovers:
        for name, mtime_s in ((".prewarm-1.part", old), (".prewarm-2.part", fresh), ("own", old)):
            (folder / name).write_bytes(b"12")
            os.utime(folder / name, (mtime_s, mtime_s))
    found = _collect(cache_dir, state_dir, 0)
    assert (found.leftovers, found.freed_bytes) == (4, 8)
    for folder in leftovers:
        assert not (folder / ".prewarm-1.part").exists()
        assert (folder / ".prewarm-2.part").exists()
        assert (folder / "own").exists()
    assert named.exists()


def test_what_cannot_be_removed_is_a_problem_and_the_rest_goes(
    open_path: Path, unprivileged: Unprivileged
) -> None:
    state_dir, cache_dir = open_path / "state", open_path / "cache"
    kept, gone = _bundle(cache_dir, "a"), _bundle(cache_dir, "b")
    state_dir.mkdir()
    state_dir.chmod(0o777)
    kept.parent.chmod(0o555)
    gone.parent.chmod(0o777)
    with unprivileged():
        _collect(cache_dir, state_dir, 0)
        found = _collect(cache_dir, state_dir, GRACE_S)
        assert keep_bundle(cache_dir, "a" * 64, now_s=NOW_S) == kept
    kept.parent.chmod(0o755)
    assert (found.bundles, found.waiting) == (("b" * 64,), 1)
    assert found.problem is not None
    assert str(kept) in found.problem
    assert kept.exists()


def test_files_that_are_no_bundles_stay(cache_dir: Path, state_dir: Path) -> None:
    path = _bundle(cache_dir, "a").with_name("README")
    path.write_bytes(b"")
    (cache_dir / "bundles" / "sha256" / "note").write_bytes(b"")
    for after_s in (0, 5000):
        _collect(cache_dir, state_dir, after_s)
    assert path.exists()


def test_killed_at_any_line_never_removes_sooner(
    cache_dir: Path, state_dir: Path, publish: Publish, run_until_killed: RunUntilKilled
) -> None:
    named, dropped = _bundle(cache_dir, "a"), _bundle(cache_dir, "b")
    publish("one", "a")
    line, killed = 0, True
    while killed:
        line += 1
        (state_dir / UNNAMED_NAME).unlink(missing_ok=True)
        killed = run_until_killed(lambda: _collect(cache_dir, state_dir, 0), module.__file__, line)
        assert dropped.exists()
        run_until_killed(lambda: _collect(cache_dir, state_dir, GRACE_S - 1), module.__file__, line)
        assert dropped.exists()
    line, killed = 0, True
    while killed:
        line += 1
        _bundle(cache_dir, "b")
        _collect(cache_dir, state_dir, 0)
        killed = run_until_killed(
            lambda: _collect(cache_dir, state_dir, GRACE_S), module.__file__, line
        )
        assert named.exists()
    assert not dropped.exists()
    assert line > 20
