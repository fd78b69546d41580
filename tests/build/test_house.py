"""Keeping house, told by what scans, `prewarm gc` and `prewarm retry` do and leave."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from prewarm.build import house
from prewarm.build.lock import state_lock
from prewarm.store.bundle import bundle_path
from prewarm.store.collect import UNNAMED_NAME
from prewarm.store.database import DATABASE_NAME, Database
from prewarm.store.doorbell import Bell, Doorbell
from prewarm.store.leases import leased, leases_directory, mark_used
from prewarm.store.status import Status
from prewarm.store.timestamp import timestamp

BULK = 100_000


def bundle_of(shop, model: str) -> Path:
    sha256 = shop.entry(model).bundle_sha256
    assert sha256 is not None
    return bundle_path(shop.settings.cache_dir, sha256)


def two_models(shop) -> tuple[Path, Path]:
    """Build m1, then m2, each with a bundle of its own of somewhat over BULK bytes."""
    shop.model("m1", graph="one", bulk_bytes=BULK)
    shop.scan()
    shop.model("m2", b"longer weights", graph="two", bulk_bytes=BULK)
    shop.scan()
    first, second = bundle_of(shop, "m1"), bundle_of(shop, "m2")
    assert first != second
    return first, second


def published(shop) -> list[str]:
    return [entry["model"] for entry in shop.manifest()["entries"]]


def gc(shop, *words: str, **variables: object) -> dict[str, Any]:
    environ = {name: str(value) for name, value in variables.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREWARM_BUILDER", shop.settings.builder)
        for name, value in environ.items():
            patch.setenv(f"PREWARM_{name.upper()}", value)
        code, told = shop.prewarm("gc", "--json", *words)
    assert code == 0, told
    found: dict[str, Any] = json.loads(shop.printed)
    return found


def test_over_the_limit_the_least_recently_used_leaves_and_is_not_built_until_asked(shop) -> None:
    first, second = two_models(shop)
    limited = shop.with_settings(cache_limit_bytes=BULK * 3 // 2, grace_s=0)
    assert not limited.scan().all_warm
    assert published(shop) == ["m2"]
    assert (first.exists(), second.exists()) == (False, True)
    entry = shop.entry("m1")
    assert (entry.status, entry.code, entry.bundle_sha256) == (Status.STALE, "evicted", None)
    assert entry.reason == (
        "its bundle made room under the limit of 150,000 bytes (cache_limit_bytes), as the least "
        "recently used; build it again with `prewarm retry m1`"
    )
    builds = shop.builds("m1")
    limited.scan()
    assert shop.builds("m1") == builds
    assert shop.entry("m1").code == "evicted"

    assert shop.prewarm("retry", "m1") == (0, "")
    assert shop.printed == "m1: queued\n"
    limited.scan()
    assert len(shop.builds("m1")) == len(builds) + 1
    assert "m1" in published(shop)


def test_what_left_for_want_of_room_comes_back_when_there_is_room(shop) -> None:
    two_models(shop)
    shop.with_settings(cache_limit_bytes=BULK * 3 // 2, grace_s=0).scan()
    assert published(shop) == ["m2"]
    shop.with_settings(cache_limit_bytes=BULK * 3).scan()
    assert published(shop) == ["m1", "m2"]


def test_it_comes_back_without_a_build_while_its_file_is_there(shop) -> None:
    first, _ = two_models(shop)
    os.utime(first, (1000, 1000))
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        record = {**(shop.entry("m1").record or {})}
        record["proof"] = {**record["proof"], "proved_at": "2001-01-01T00:00:00.000Z"}
        database.execute(
            "UPDATE entries SET record = :record WHERE model = 'm1'",
            {"record": json.dumps(record)},
        )
    shop.with_settings(cache_limit_bytes=BULK * 3 // 2).scan()
    assert (published(shop), first.exists()) == (["m2"], True)
    builds = shop.builds("m1")
    shop.with_settings(cache_limit_bytes=0).scan()
    assert (published(shop), shop.builds("m1")) == (["m1", "m2"], builds)


def test_a_deployment_that_waits_for_it_brings_it_back(shop) -> None:
    two_models(shop)
    limited = shop.with_settings(cache_limit_bytes=BULK * 3 // 2, grace_s=0)
    limited.scan()
    assert published(shop) == ["m2"]
    now_s = time.time()
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        database.put_request("m1", None, at=timestamp(now_s), until=timestamp(now_s + 600))
    limited.scan()
    assert "m1" in published(shop)


def test_changed_inputs_bring_it_back(shop) -> None:
    two_models(shop)
    limited = shop.with_settings(cache_limit_bytes=BULK * 3 // 2, grace_s=0)
    limited.scan()
    assert published(shop) == ["m2"]
    shop.model("m1", b"new weights", graph="one", bulk_bytes=BULK)
    limited.scan()
    assert "m1" in published(shop)


def test_with_everything_in_use_nothing_goes_and_status_says_why(shop) -> None:
    first, second = two_models(shop)
    found = gc(shop, cache_limit_bytes=1)
    assert found["evicted"] == []
    assert "all are in use" in str(found["problem"])
    assert published(shop) == ["m1", "m2"]
    shop.prewarm("status")
    assert shop.printed.splitlines()[-1] == found["problem"]
    shop.prewarm("status", "--json")
    told = json.loads(shop.printed)["house"]
    assert told["problem"] == found["problem"]
    assert told["bundle_bytes"] == first.stat().st_size + second.stat().st_size
    gc(shop)
    shop.prewarm("status")
    assert "in use" not in shop.printed


def test_a_bundle_that_is_read_stays_and_a_start_counts_as_use(shop) -> None:
    first, second = two_models(shop)
    cache_dir, sha256 = shop.settings.cache_dir, first.name.split(".")[0]
    with leased([(cache_dir, sha256)]):
        found = gc(shop, cache_limit_bytes=1, grace_s=0)
    assert [one["models"] for one in found["evicted"]] == [["m2"]]
    assert (first.exists(), second.exists()) == (True, False)


def test_a_start_from_a_bundle_counts_as_use(shop) -> None:
    first, _ = two_models(shop)
    mark_used([(shop.settings.cache_dir, first.name.split(".")[0])])
    gc(shop, cache_limit_bytes=BULK * 3 // 2, grace_s=0)
    assert published(shop) == ["m1"]
    marks = [path.name for path in leases_directory(shop.settings.cache_dir).iterdir()]
    assert marks == [f"{first.name.split('.')[0]}.used"]


def test_a_reported_start_counts_as_use(shop) -> None:
    first, _ = two_models(shop)
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        database.add_report(
            "m1", shop.entry("m1").environment_id, bundle_sha256=first.name.split(".")[0],
            at=timestamp(time.time()), uid=None, first_answer_s=None, compiled=False, report={},
        )  # fmt: skip
    gc(shop, cache_limit_bytes=BULK * 3 // 2, grace_s=0)
    assert published(shop) == ["m1"]


def test_an_unnamed_bundle_outlives_its_grace_period_while_it_is_read(shop) -> None:
    first, _ = two_models(shop)
    (shop.root / "registry" / "m1" / "model.bin").unlink()
    (shop.root / "registry" / "m1" / "behaviour.json").unlink()
    (shop.root / "registry" / "m1").rmdir()
    shop.scan()
    assert published(shop) == ["m2"]
    with leased([(shop.settings.cache_dir, first.name.split(".")[0])]):
        assert gc(shop, grace_s=0)["removed"] == []
    assert first.exists()
    assert [one["bundle"] for one in gc(shop, grace_s=0)["removed"]] == [first.name.split(".")[0]]
    assert not first.exists()


def test_what_nobody_used_for_long_leaves_for_good(shop) -> None:
    shop.model("m1", graph="one")
    shop.scan()
    real_s = time.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prewarm.cli.gc.time.time", lambda: real_s() + 3 * 86_400)
        gc(shop, unused_s=4 * 86_400)
        assert published(shop) == ["m1"]
        gc(shop, unused_s=2 * 86_400)
    entry = shop.entry("m1")
    assert (entry.status, entry.code, published(shop)) == (Status.STALE, "unused", [])
    assert "was not used for 3 days (unused_s)" in entry.reason
    shop.scan()
    assert (shop.entry("m1").code, shop.builds("m1")) == ("unused", ["compiled"])
    shop.prewarm("retry")
    shop.scan()
    assert published(shop) == ["m1"]


def test_a_dry_run_tells_the_same_and_changes_nothing(shop) -> None:
    first, second = two_models(shop)
    bounds = {"cache_limit_bytes": BULK * 3 // 2, "grace_s": 0}
    before = sorted(path.stat().st_mtime_ns for path in shop.settings.cache_dir.rglob("*"))
    state = {path.name for path in shop.settings.state_dir.iterdir()}
    with state_lock(shop.settings.state_dir, what="prewarm serve", at=""):
        dry = gc(shop, "--dry-run", **bounds)
    assert sorted(path.stat().st_mtime_ns for path in shop.settings.cache_dir.rglob("*")) == before
    assert {path.name for path in shop.settings.state_dir.iterdir()} == state
    assert (first.exists(), second.exists(), published(shop)) == (True, True, ["m1", "m2"])
    real = gc(shop, **bounds)
    assert dry["evicted"] == real["evicted"] != []
    assert (dry["dry_run"], real["dry_run"]) == (True, False)
    assert real["freed_bytes"] > BULK


def test_gc_asks_the_service_that_works_on_the_state(shop) -> None:
    two_models(shop)
    bell = Doorbell(shop.settings.state_dir)
    bounds = {"cache_limit_bytes": BULK * 3 // 2, "grace_s": 0}
    with state_lock(shop.settings.state_dir, what="prewarm serve", at="now"):
        asked = gc(shop, **bounds)
        assert bell.answer(Bell.HOUSE)
        dry = gc(shop, "--dry-run", **bounds)
        assert not bell.answer(Bell.HOUSE)
        shop.prewarm("gc")
    assert asked["asked"].startswith(f"prewarm serve (pid {os.getpid()}, since now")
    assert (asked["dry_run"], dry["dry_run"], dry["asked"]) == (False, True, None)
    assert asked["evicted"] == dry["evicted"] != []
    assert shop.printed.startswith(f"asked prewarm serve (pid {os.getpid()}, since now) to free ")


def test_gc_waits_for_nobody_else_who_works_on_the_state(shop) -> None:
    shop.model("m1")
    shop.scan()
    with state_lock(shop.settings.state_dir, what="prewarm scan", at="now"):
        code, told = shop.prewarm("gc")
    assert code == 1
    assert "prewarm scan (pid" in told
    assert not Doorbell(shop.settings.state_dir).answer(Bell.HOUSE)


def test_gc_without_a_state_makes_none(shop) -> None:
    code, told = shop.prewarm("gc")
    assert (code, shop.settings.state_dir.exists()) == (1, False)
    assert "no state at" in told


def test_gc_tells_each_thing_that_goes(shop) -> None:
    two_models(shop)
    part = shop.settings.cache_dir / "bundles" / ".prewarm-1.part"
    part.write_bytes(b"12")
    os.utime(part, (1000, 1000))
    shop.prewarm("gc", "--dry-run")
    assert [line.split()[0] for line in shop.printed.splitlines()] == ["what", "leftover", "would"]
    shop.prewarm("gc")
    assert shop.printed.splitlines()[-1] == "freed 2 B"
    assert not part.exists()


def test_logs_stay_within_their_limit_and_the_oldest_go(shop) -> None:
    two_models(shop)
    logs = shop.settings.state_dir / "logs"
    old, new = (Path(shop.entry(model).log or "") for model in ("m1", "m2"))
    for second, log in enumerate((old, new)):
        log.write_bytes(bytes(50_000))
        os.utime(log, (1000 + second, 1000 + second))
    found = gc(shop, logs_limit_bytes="60K")
    assert found["logs"] == [old.name]
    assert not old.exists()
    assert new.exists()
    assert logs.joinpath(f"probe-{shop.entry('m1').environment_id}.log").exists()


def test_a_log_goes_with_the_last_that_names_it(shop) -> None:
    two_models(shop)
    log = Path(shop.entry("m1").log or "")
    for path in (shop.root / "registry" / "m1").iterdir():
        path.unlink()
    (shop.root / "registry" / "m1").rmdir()
    shop.scan()
    assert gc(shop)["logs"] == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(house, "MOST_RETIRED", 0)
        gc(shop)
        assert not shop.known("m1")
        assert gc(shop)["logs"] == [log.name]
    assert not log.exists()


def test_each_build_has_a_log_of_its_own(shop) -> None:
    shop.model("m1", compile="exit")
    shop.scan()
    first = shop.entry("m1").log
    shop.model("m1")
    shop.scan()
    second = shop.entry("m1").log
    assert first != second
    assert Path(first or "").is_file() and Path(second or "").is_file()
    assert gc(shop)["logs"] == []


def test_history_is_brought_within_its_bounds(shop) -> None:
    shop.model("m1", compile="exit")
    shop.scan()
    real_s = time.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prewarm.cli.gc.time.time", lambda: real_s() + house.HISTORY_S + 60)
        gc(shop)
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        # What decides about the next try, and what `status` shows of the last one.
        assert [event.to_status for event in database.events()] == [Status.FAILED]
        assert len(database.builds(shop.entry("m1").id)) == 1


def test_digests_of_files_that_are_gone_are_forgotten(shop) -> None:
    two_models(shop)
    gone = shop.root / "registry" / "m1" / "model.bin"
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        before = {row["path"] for row in database.query("SELECT path FROM files")}
        gone.unlink()
        assert gc(shop)["digests"] == 1
        after = {row["path"] for row in database.query("SELECT path FROM files")}
    assert before - after == {str(gone)}
    assert gc(shop)["digests"] == 0


def test_a_crash_between_the_database_and_the_manifest_only_removes_later(
    shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = two_models(shop)
    limited = shop.with_settings(cache_limit_bytes=BULK * 3 // 2, grace_s=0)

    def crash(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(house, "publish", crash)
    with pytest.raises(KeyboardInterrupt):
        limited.scan()
    monkeypatch.undo()
    assert (shop.entry("m1").code, published(shop)) == ("evicted", ["m1", "m2"])
    assert first.exists()
    limited.scan()
    assert (published(shop), first.exists()) == (["m2"], False)


# -- several builders


def test_builders_of_one_cache_dir_never_collect_what_another_names(shop) -> None:
    shop.model("m1", graph="one", bulk_bytes=BULK)
    shop.scan()
    other = shop.with_settings(state_dir=shop.root / "state2", builder="other", grace_s=0)
    shop.model("m2", b"longer weights", graph="two", bulk_bytes=BULK)
    other.scan()
    shared, own = bundle_of(shop, "m1"), bundle_of(other, "m2")
    # An empty state took over what was there, by proof alone.
    assert bundle_of(other, "m1") == shared
    assert other.builds("m1") == []
    assert not (other.settings.state_dir / UNNAMED_NAME).exists()

    found = gc(other, cache_limit_bytes=1, grace_s=0, unused_s="0.001")
    assert [one["models"] for one in found["evicted"]] == [["m2"]]
    assert (shared.exists(), own.exists()) == (True, False)
    assert "all are in use: named by another builder" in str(found["problem"])
    # Retired for one, it stays for the other.
    for path in (shop.root / "registry" / "m1").iterdir():
        path.unlink()
    (shop.root / "registry" / "m1").rmdir()
    other.scan()
    gc(other, grace_s=0)
    assert shared.exists()
    shop.with_settings(grace_s=0).scan()
    assert not shared.exists()
