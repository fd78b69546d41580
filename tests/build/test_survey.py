"""What a look at the registry means for the entries, told by what a scan does and leaves."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from prewarm.store.database import DATABASE_NAME, Database
from prewarm.store.status import Status

UNFINISHED = struct.pack("<Q", 2) + b"{"


def steps(shop, what: str) -> list[str]:
    return [step.model for step in shop.steps if step.what == what]


def test_a_checkpoint_without_a_declaration_is_named_and_left_alone(shop) -> None:
    (shop.root / "registry" / "prewarm.toml").unlink()
    directory = shop.model("lonely")
    (directory / "config.json").write_text('{"model_type": "bert"}')
    result = shop.scan()
    assert (result.entries, result.undeclared) == ((), ("lonely",))
    assert result.all_warm


def test_torch_is_asked_once_per_environment_and_not_again(shop) -> None:
    shop.model("m1")
    shop.model("m2", b"others")
    shop.scan()
    assert len(steps(shop, "probe")) == 1
    shop.model("m3", b"further")
    shop.scan()
    assert steps(shop, "probe") == []


def test_a_probe_that_was_killed_is_made_again_soon_and_costs_no_attempt(shop) -> None:
    shop.model("m1", probe="kill")
    shop.scan()
    first = shop.entry("m1")
    assert (first.status, first.code, first.attempts) == (Status.FAILED, "killed", 0)
    assert first.next_try_at is not None and first.next_try_at > first.updated_at
    shop.scan()
    again = shop.entry("m1")
    assert (again.next_try_at, again.updated_at) == (first.next_try_at, first.updated_at)
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        database.put_off(first.id, first.updated_at)
        events = database.events("m1")
    shop.scan()
    assert (shop.entry("m1").next_try_at or "") > first.updated_at
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        assert database.events("m1") == events
    shop.model("m1")
    assert shop.scan().all_warm


def test_what_only_a_change_mends_is_not_put_off(shop) -> None:
    shop.model("m1")
    (shop.root / "registry" / "m1" / "prewarm.toml").write_text("[model]\nloader = 'none'\n")
    shop.scan()
    assert shop.entry("m1").status is Status.FAILED
    assert shop.entry("m1").next_try_at is None


def test_small_checkpoints_come_before_large_ones(shop) -> None:
    shop.model("a", b"w" * 3000)
    shop.model("b", b"w" * 2000)
    shop.model("c", b"w" * 1000)
    shop.scan()
    assert steps(shop, "begin") == ["c", "b", "a"]


def test_what_is_still_written_settles_and_is_built_when_it_is_quiet(shop) -> None:
    shop = shop.with_settings(settle_s=0.5)
    shop.model("m1")
    assert shop.scan().all_warm
    assert "settle" in [step.what for step in shop.steps]
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        seen = [event.to_status for event in database.events("m1")]
    assert Status.SETTLING in seen


def test_what_never_becomes_whole_is_failed_and_says_which_file(shop) -> None:
    directory = shop.model("m1")
    (directory / "model.safetensors").write_bytes(UNFINISHED)
    shop.scan()
    entry = shop.entry("m1")
    assert (entry.status, entry.code) == (Status.FAILED, "bad_checkpoint")
    assert "model.safetensors" in entry.reason
    (directory / "model.safetensors").unlink()
    assert shop.scan().all_warm


def test_a_declaration_that_was_mended_leaves_one_entry(shop) -> None:
    shop.declare(change=("dynamic = false", "dynmaic = false"))
    shop.model("m1")
    shop.scan()
    assert shop.entry("m1").environment_id == ""
    shop.declare()
    assert shop.scan().all_warm
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        statuses = {entry.environment_id: entry.status for entry in database.entries()}
    assert statuses.pop("") is Status.RETIRED
    assert list(statuses.values()) == [Status.WARM]


def test_a_warm_entry_whose_declaration_breaks_is_not_warm_any_more(shop) -> None:
    shop.model("m1")
    shop.scan()
    shop.declare(change=("dynamic = false", "dynmaic = false"))
    assert not shop.scan().all_warm


def test_a_loader_of_a_later_version_says_so(shop) -> None:
    shop.declare(change=('loader = "python"\nfactory = "fake:build"', 'loader = "command"'))
    shop.model("m1")
    result = shop.scan()
    (entry,) = result.entries
    assert entry.status is Status.FAILED
    assert "prewarm.toml" in entry.reason


def test_no_compiler_is_told_before_a_build(shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++")
    shop.model("m1")
    shop.scan()
    entry = shop.entry("m1")
    assert (entry.status, entry.code) == (Status.FAILED, "no_compiler")
    assert "/nowhere/g++" in entry.reason
    assert shop.builds("m1") == []


def test_an_interpreter_that_is_not_there_fails_its_entries(shop) -> None:
    python = (shop.root / "registry" / "prewarm.toml").read_text()
    line = next(line for line in python.splitlines() if line.startswith("interpreter"))
    shop.declare(change=(line, 'interpreter = ["/nowhere/python"]'))
    shop.model("m1")
    shop.scan()
    entry = shop.entry("m1")
    assert (entry.status, entry.code) == (Status.FAILED, "no_interpreter")
    assert "/nowhere/python" in entry.reason
    assert "[model] interpreter" in entry.reason


def test_a_file_that_only_looks_newer_is_not_compiled_again(shop) -> None:
    directory: Path = shop.model("m1")
    shop.scan()
    os.utime(directory / "model.bin")
    assert shop.scan().all_warm
    assert shop.builds("m1") == ["compiled"]


def the_bundle(shop) -> Path:
    (bundle,) = (shop.settings.cache_dir / "bundles").glob("sha256/*/*.tar.zst")
    return bundle


def test_a_bundle_that_was_cut_is_built_again(shop) -> None:
    shop.model("m1")
    shop.scan()
    os.truncate(the_bundle(shop), 10)
    assert shop.scan().all_warm
    assert shop.builds("m1") == ["compiled", "compiled"]
    assert the_bundle(shop).stat().st_size > 10


def test_a_model_that_is_back_is_proven_and_not_compiled(shop) -> None:
    directory = shop.model("m1")
    shop.model("m2", b"other weights")
    shop.scan()
    aside = directory.rename(shop.root / "aside")
    assert shop.scan().retired == ("m1",)
    aside.rename(directory)
    assert shop.scan().all_warm
    assert shop.builds("m1") == ["compiled"]


def test_a_look_without_news_writes_no_event(shop) -> None:
    shop.declare(change=("dynamic = false", "dynamical = false"))
    shop.model("m1")
    for _ in range(3):
        shop.scan()
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        assert [event.code for event in database.events("m1")] == ["bad_declaration"]
        (entry,) = database.entries_of("m1")
    assert (entry.status, entry.attempts, entry.next_try_at) == (Status.FAILED, 0, None)
