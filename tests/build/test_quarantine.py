"""Setting aside: who loses a bundle, in which order, and what the next scan makes of a crash."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from prewarm.build import quarantine as module
from prewarm.build.bench import Bench
from prewarm.build.quarantine import set_aside
from prewarm.build.workspace import Workspace
from prewarm.store import bundle_check
from prewarm.store.bundle import bundle_path
from prewarm.store.database import DATABASE_NAME, Database
from prewarm.store.quarantine import read_quarantine
from prewarm.store.status import Status


@contextmanager
def bench_of(shop) -> Iterator[Bench]:
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        workspace = Workspace(shop.settings.state_dir)
        steps = shop.steps
        yield Bench(shop.settings, database, workspace, shop.root, shop.stop, steps.append)


def put_aside(shop, sha256: str, *, damaged: bool) -> list[str]:
    with bench_of(shop) as bench:
        queued = set_aside(bench, sha256, reason="it failed", damaged=damaged)
    return [entry.model for entry in queued]


def bundle_of(shop, model: str) -> Path:
    return bundle_path(shop.settings.cache_dir, shop.entry(model).bundle_sha256)


def flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        [last] = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))


def flip_silently(shop, path: Path) -> None:
    """Damage a bundle as a disk does: nothing that a look at the inode shows has changed."""
    flip(path)
    found = path.stat()
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        database.put_file_digest(
            path,
            size_bytes=found.st_size,
            mtime_ns=found.st_mtime_ns,
            ctime_ns=found.st_ctime_ns,
            inode=found.st_ino,
            digest=path.name.removesuffix(".tar.zst"),
        )


def published(shop) -> list[str]:
    return [entry["model"] for entry in shop.manifest()["entries"]]


def events(shop, model: str) -> list[tuple[str, str | None]]:
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        return [(event.to_status.value, event.code) for event in database.events(model)]


def whole(shop) -> bool:
    """Tell whether every bundle of the manifest is what its name promises."""
    named = {entry["bundle"]["sha256"] for entry in shop.manifest()["entries"]}
    cache_dir = shop.settings.cache_dir
    return all(
        hashlib.sha256(bundle_path(cache_dir, sha256).read_bytes()).hexdigest() == sha256
        for sha256 in named
    )


def in_quarantine(shop) -> int | None:
    return read_quarantine(shop.settings.state_dir).bundles


@pytest.fixture
def reads(shop, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The bundles that were read to check them where they lie."""
    seen: list[object] = []
    read = hashlib.file_digest

    def count(file, name: str):
        if str(shop.settings.cache_dir) in str(file.name):
            seen.append(file.name)
        return read(file, name)

    monkeypatch.setattr(bundle_check.hashlib, "file_digest", count)
    return seen


def test_every_entry_on_the_bundle_is_queued_with_the_reason_and_leaves_the_manifest(shop) -> None:
    shop.model("m1", graph="one")
    shop.model("m2", b"other", graph="one")
    shop.model("m3", b"and another", graph="two")
    shop.scan()
    bundle = bundle_of(shop, "m1")

    assert put_aside(shop, shop.entry("m1").bundle_sha256, damaged=False) == ["m1", "m2"]

    assert published(shop) == ["m3"]
    assert not bundle.exists()
    for model in ("m1", "m2"):
        entry = shop.entry(model)
        assert (entry.status, entry.code) == (Status.QUEUED, "quarantined")
        assert entry.reason == "it failed"
        assert events(shop, model)[:2] == [("queued", "quarantined"), ("stale", "quarantined")]
    note = json.loads(next((shop.settings.state_dir / "quarantine").glob("*.json")).read_text())
    assert (note["models"], note["reason"]) == (["m1", "m2"], "it failed")
    assert note["build_keys"] == [shop.entry("m1").build_key]
    assert shop.scan().all_warm
    assert published(shop) == ["m1", "m2", "m3"]


def test_an_entry_that_rests_for_a_reason_of_its_own_keeps_it(shop) -> None:
    directory = shop.model("m1")
    shop.model("m2", b"other weights")
    shop.scan()
    directory.rename(shop.root / "aside")
    shop.scan()

    assert put_aside(shop, shop.entry("m2").bundle_sha256, damaged=False) == ["m2"]

    assert (shop.entry("m1").status, shop.entry("m1").code) == (Status.RETIRED, "checkpoint_gone")


def other_builder(shop):
    other = shop.with_settings(builder="other", state_dir=shop.root / "other-state")
    assert other.scan().all_warm
    return other


def test_wrong_content_goes_though_another_builder_names_it(shop) -> None:
    shop.model("m1")
    shop.scan()
    other = other_builder(shop)
    bundle = bundle_of(shop, "m1")
    flip(bundle)
    put_aside(shop, shop.entry("m1").bundle_sha256, damaged=True)
    assert not bundle.exists()
    assert other.scan().all_warm  # which mends its own
    assert whole(shop)


@pytest.mark.parametrize("damaged", [False, True])
def test_right_content_stays_where_another_builder_names_it(shop, damaged: bool) -> None:
    # With ``damaged``: the other builder published it anew since the damage was seen.
    shop.model("m1")
    shop.scan()
    other_builder(shop)
    bundle = bundle_of(shop, "m1")
    put_aside(shop, shop.entry("m1").bundle_sha256, damaged=damaged)
    assert bundle.exists()
    assert in_quarantine(shop) == 0
    assert published(shop) == []
    assert shop.scan().all_warm
    assert shop.builds("m1") == ["compiled"] * 2  # not shared again: it failed here


def test_while_a_manifest_cannot_be_read_right_content_stays(shop) -> None:
    shop.model("m1")
    shop.scan()
    (shop.settings.cache_dir / "manifests" / "other.json").write_text("{")
    bundle = bundle_of(shop, "m1")
    put_aside(shop, shop.entry("m1").bundle_sha256, damaged=False)
    assert bundle.exists()
    assert published(shop) == []


# -- crashes


class Crash(BaseException):
    pass


@pytest.mark.parametrize("step", ["forget", "database", "manifest", "file", "end"])
def test_the_next_scan_mends_a_crash_after_any_step(
    shop, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    shop.model("m1")
    shop.model("m2", b"other", graph="two")
    shop.scan()
    sha256 = shop.entry("m1").bundle_sha256
    flip(bundle_of(shop, "m1"))

    def crash(*_: object, **__: object) -> None:
        raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash), bench_of(shop) as bench:
        if step == "forget":
            patch.setattr(Database, "quarantine", crash)
        elif step == "database":
            patch.setattr(module, "publish", crash)
        elif step == "manifest":
            patch.setattr(module, "move_to_quarantine", crash)
        elif step == "file":
            patch.setattr(module, "Step", crash)
        set_aside(bench, sha256, reason="it failed", damaged=True)
        raise Crash
    named_at_first_work: list[list[str]] = []
    shop.steps = Telling(
        lambda step: named_at_first_work.append(published(shop)) if step.what == "begin" else None
    )

    assert shop.scan().all_warm

    assert named_at_first_work[0] == ["m2"]
    assert in_quarantine(shop) == 1
    assert shop.builds("m1") == ["compiled"] * 2
    assert published(shop) == ["m1", "m2"]
    assert whole(shop)


class Telling(list):
    """A list of steps that tells each one on."""

    def __init__(self, told: Callable[[object], None]) -> None:
        super().__init__()
        self._told = told

    def append(self, step) -> None:
        super().append(step)
        self._told(step)


def test_a_full_disk_at_the_manifest_is_mended_by_the_next_scan(
    shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prewarm.errors import NoSpace

    shop.model("m1")
    shop.scan()
    flip(bundle_of(shop, "m1"))

    def full(*_: object) -> None:
        raise NoSpace("no space left")

    with monkeypatch.context() as patch, pytest.raises(NoSpace):
        patch.setattr(module, "publish", full)
        shop.scan()
    assert shop.scan().all_warm
    assert in_quarantine(shop) == 1
    assert whole(shop)


# -- what a scan finds


def test_an_untouched_bundle_is_read_by_one_later_scan_alone(shop, reads: list[object]) -> None:
    shop.model("m1")
    shop.scan()
    assert reads == []
    for _ in range(3):
        shop.scan()
    assert len(reads) == 1


def test_after_the_rebuild_two_more_scans_do_nothing(shop) -> None:
    shop.model("m1")
    shop.scan()
    flip(bundle_of(shop, "m1"))
    assert shop.scan().all_warm
    assert shop.builds("m1") == ["compiled"] * 2
    generation, seen = shop.manifest()["generation"], events(shop, "m1")
    for _ in range(2):
        assert shop.scan().all_warm
        assert [step.what for step in shop.steps] == ["scan"]
    assert (shop.manifest()["generation"], events(shop, "m1")) == (generation, seen)
    assert shop.builds("m1") == ["compiled"] * 2
    assert in_quarantine(shop) == 1


def test_silent_damage_is_found_by_who_shares_it_and_all_is_mended_in_the_same_scan(shop) -> None:
    shop.model("m1")
    shop.scan()
    flip_silently(shop, bundle_of(shop, "m1"))
    assert shop.scan().all_warm  # a scan does not read what was not touched
    assert in_quarantine(shop) == 0
    shop.model("m2", b"other weights")
    assert shop.scan().all_warm
    assert in_quarantine(shop) == 1
    assert shop.entry("m1").bundle_sha256 == shop.entry("m2").bundle_sha256
    assert ("queued", "quarantined") in events(shop, "m1")
    assert whole(shop)


def test_silent_damage_of_the_nearest_bundle_leaves_a_whole_build(shop) -> None:
    shop.model("m1")
    shop.scan()
    flip_silently(shop, bundle_of(shop, "m1"))
    shop.declare(change=("batch = [3]", "batch = [3, 4]"))
    assert shop.scan().all_warm
    assert in_quarantine(shop) == 1
    assert whole(shop)


def test_an_older_good_bundle_of_the_same_key_comes_before_a_new_build(shop) -> None:
    directory = shop.model("m1")
    shop.scan()
    first = shop.entry("m1")
    put_aside(shop, first.bundle_sha256, damaged=False)
    shop.model("m1", bulk_bytes=5)
    shop.scan()
    second = shop.entry("m1")
    assert second.build_key == first.build_key
    assert second.bundle_sha256 != first.bundle_sha256
    # The first is back, say from a backup, and good again.
    kept = shop.settings.state_dir / "quarantine" / f"{first.bundle_sha256}.tar.zst"
    kept.rename(bundle_path(shop.settings.cache_dir, first.bundle_sha256))
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        database.execute("UPDATE bundles SET quarantined_at = NULL")
    flip(bundle_path(shop.settings.cache_dir, second.bundle_sha256))
    assert shop.scan().all_warm
    assert shop.entry("m1").bundle_sha256 == first.bundle_sha256
    assert shop.builds("m1") == ["compiled"] * 2
    assert directory.is_dir()


def test_an_old_entry_on_a_bundle_that_is_quarantined_already_is_built_again(shop) -> None:
    # As an earlier version left it, which marked the bundle alone.
    shop.model("m1")
    shop.scan()
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        database.execute("UPDATE bundles SET quarantined_at = 'then', quarantine_reason = 'why'")
    assert shop.scan().all_warm
    assert shop.builds("m1") == ["compiled"] * 2
    assert shop.scan().all_warm
    assert shop.builds("m1") == ["compiled"] * 2
