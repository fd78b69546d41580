"""A scan from the lock to the last manifest: in this process, and as ``prewarm scan``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from prewarm.build.child import Interrupted
from prewarm.build.step import Step
from prewarm.errors import ConfigError, NotWritable, RegistryError
from prewarm.plain_text import is_plain
from prewarm.store.status import Status


def prewarm(shop, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {
        **os.environ,
        "PREWARM_REGISTRY": str(shop.settings.registry),
        "PREWARM_CACHE_DIR": str(shop.settings.cache_dir),
        "PREWARM_STATE_DIR": str(shop.settings.state_dir),
        "PREWARM_BUILDER": "test",
        "PREWARM_SETTLE_S": "0.05",
        **variables,
    }
    return subprocess.run(
        [sys.executable, "-m", "prewarm.cli", *words],
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_zero_only_if_every_entry_is_warm(shop) -> None:
    shop.model("m1")
    first = prewarm(shop, "scan")
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines()[0] == "m1: warm"
    assert first.stdout.splitlines()[-1].startswith("1 of 1 entries are warm (")
    shop.model("m2", b"other weights", graph="two", report={"limits_hit": 1})
    second = prewarm(shop, "scan")
    assert second.returncode == 1
    assert "m1: warm" in second.stdout
    assert "m2: partial: at a start from the bundle torch's recompile limit" in second.stdout
    assert prewarm(shop, "scan", "m1").returncode == 0


def test_json_holds_every_entry_and_nothing_else_is_printed(shop) -> None:
    shop.model("m1")
    shop.model("m2", b"other weights", graph="two", compile="exit")
    done = prewarm(shop, "scan", "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert told.keys() == {"entries", "undeclared", "retired", "seconds"}
    good, bad = told["entries"]
    assert (good["model"], good["status"], good["reason"]) == ("m1", "warm", None)
    assert (bad["model"], bad["status"], bad["code"]) == ("m2", "failed", "ended_early")
    assert len(good["bundle"]) == len(good["build_key"]) == 64
    assert bad["bundle"] is None
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "variables", "code", "told"),
    [
        (("scan", "--nonsense"), {}, 2, "--nonsense"),
        (("scan", "nobody"), {}, 1, "nobody: no such checkpoint"),
        (("scan",), {"PREWARM_REGISTRY": "/nowhere/at/all"}, 1, "/nowhere/at/all"),
        (("scan",), {"PREWARM_REGISTRY": ""}, 1, "PREWARM_REGISTRY"),
        (("scan",), {"PREWARM_SETTLE_S": "soon"}, 1, "PREWARM_SETTLE_S"),
    ],
)
def test_what_cannot_be_scanned_is_told_in_one_line(shop, words, variables, code, told) -> None:
    shop.model("m1")
    done = prewarm(shop, *words, **variables)
    assert done.returncode == code, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_an_empty_registry_is_no_failure(shop) -> None:
    result = shop.scan()
    assert (result.entries, result.all_warm) == ((), True)
    assert shop.manifest()["entries"] == []


def test_what_a_killed_run_left_on_its_way_in_the_state_dir_is_removed(shop) -> None:
    shop.settings.state_dir.mkdir()
    part = shop.settings.state_dir / ".prewarm-00.part"
    part.touch()
    shop.scan()
    assert not part.exists()


def test_no_registry_is_told(shop) -> None:
    with pytest.raises(ConfigError, match="PREWARM_REGISTRY"):
        shop.with_settings(registry=None).scan()
    with pytest.raises(RegistryError, match="no such directory"):
        shop.with_settings(registry=shop.root / "nowhere").scan()


def test_a_failed_build_is_tried_once_a_scan_though_another_checkpoint_settles(
    shop, wait_until
) -> None:
    shop = shop.with_settings(settle_s=0.6)
    newest_s = (shop.model("bad", compile="exit") / "behaviour.json").stat().st_ctime
    wait_until(lambda: time.time() > newest_s + 0.7)  # it is quiet, and the next is not
    shop.model("late", b"other weights", graph="two")
    result = shop.scan()
    assert {entry.model: entry.status for entry in result.entries} == {
        "bad": Status.FAILED,
        "late": Status.WARM,
    }
    assert "settle" in [step.what for step in shop.steps]
    assert shop.builds("bad") == ["failed"]
    shop.scan()
    assert shop.builds("bad") == ["failed", "failed"]
    assert shop.entry("bad").attempts == 2


def test_an_interrupt_between_two_entries_leaves_the_second_queued(shop) -> None:
    shop.model("m1")
    shop.model("m2", b"longer weights", graph="two")

    def report(step: Step) -> None:
        if step.what == "end":
            shop.stop.set()

    shop.steps = _Telling(report)
    with pytest.raises(Interrupted):
        shop.scan()
    assert shop.entry("m1").status is Status.WARM
    assert shop.entry("m2").status is Status.QUEUED
    assert [entry["model"] for entry in shop.manifest()["entries"]] == ["m1"]


def test_an_interrupt_while_a_child_works_queues_its_entry_again(shop) -> None:
    shop.model("m1", compile="hang")

    def report(step: Step) -> None:
        if step.what == "cold":
            shop.stop.set()

    shop.steps = _Telling(report)
    with pytest.raises(Interrupted):
        shop.scan()
    assert shop.entry("m1").status is Status.QUEUED
    assert shop.builds("m1") == ["interrupted"]


def test_a_cache_dir_that_is_read_only_is_told_before_a_build(shop) -> None:
    shop.model("m1")
    shop.scan()
    shop.model("m2", b"other weights", graph="two")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(shop.settings.cache_dir / "bundles")],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"mounting is not permitted here: {mounted.stderr.strip()}")
    try:
        with pytest.raises(NotWritable, match="Read-only file system"):
            shop.scan()
    finally:
        subprocess.run(["umount", "-l", str(shop.settings.cache_dir / "bundles")], check=True)
    assert shop.steps == []


def test_a_bundle_that_has_no_room_does_not_hold_back_the_others(shop) -> None:
    shop.model("m1", graph="one", bulk_bytes=2 << 20)
    shop.model("m2", b"longer weights", graph="two")
    shop.settings.cache_dir.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(shop.settings.cache_dir)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"mounting is not permitted here: {mounted.stderr.strip()}")
    try:
        shop.scan()
        assert [entry["model"] for entry in shop.manifest()["entries"]] == ["m2"]
        left = [path for path in shop.settings.cache_dir.rglob("*") if path.is_file()]
        assert len(left) == 2  # the manifest and its one bundle
    finally:
        subprocess.run(["umount", "-l", str(shop.settings.cache_dir)], check=True)
    first, second = shop.entry("m1"), shop.entry("m2")
    assert (first.status, first.code) == (Status.FAILED, "no_space")
    assert str(shop.settings.cache_dir) in first.reason
    assert second.status is Status.WARM


class _Telling(list[Step]):
    """A list of steps that tells each one on."""

    def __init__(self, told) -> None:
        super().__init__()
        self._told = told

    def append(self, step: Step) -> None:
        super().append(step)
        self._told(step)


def test_an_empty_mount_point_retires_nothing_and_says_so(shop) -> None:
    directory = shop.model("m")
    shop.scan()
    kept = shop.settings.state_dir / "registry.json"
    seen = json.loads(kept.read_text())
    # As if a disk had been mounted there, and the builder had started before it is again.
    kept.write_text(json.dumps(seen | {"mount_point": str(shop.settings.registry), "device": 1}))
    shutil.rmtree(directory)
    with pytest.raises(
        RegistryError, match=r"nothing is mounted at .* any more; nothing is retired"
    ):
        shop.scan()
    assert shop.entry("m").status is Status.WARM
    kept.unlink()
    assert shop.scan().retired == ("m",)


def test_a_name_that_no_database_can_hold_fails_alone_and_spelt_out(shop) -> None:
    shop.model("good")
    for name in (b"not-utf-8-\xff", b"escape-\x1b[2J"):
        directory = shop.root / "registry" / os.fsdecode(name)
        try:
            directory.mkdir()
        except OSError:
            pytest.skip("this file system takes UTF-8 names only")
        (directory / "model.bin").write_bytes(name)

    assert not shop.scan().all_warm

    assert shop.entry("good").status is Status.WARM
    for model in ("not-utf-8-\\udcff", "escape-\\x1b[2J"):
        entry = shop.entry(model)
        assert (entry.status, entry.code) == (Status.FAILED, "bad_checkpoint")
        assert entry.reason == f"{model}: its name is no plain text; rename it"
    assert shop.prewarm("status")[0] == 0
    assert is_plain(shop.printed.replace("\n", ""))
