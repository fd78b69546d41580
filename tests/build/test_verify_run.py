"""A verification: a clean proof is recorded, a verdict takes its bundle away, a mishap nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prewarm.build.child import Interrupted
from prewarm.build.verified import Outcome, Verified
from prewarm.build.verify_run import run_verify
from prewarm.errors import ConfigError, PrewarmError, RegistryError
from prewarm.store.bundle import bundle_path
from prewarm.store.database import DATABASE_NAME, Database
from prewarm.store.entries import Entry
from prewarm.store.quarantine import read_quarantine
from prewarm.store.status import Status


def verify(shop, *models: str) -> tuple[Verified, ...]:
    shop.steps.clear()
    return run_verify(shop.settings, models=models, report=shop.steps.append, stop=shop.stop)


def verify_one(shop, model: str) -> Verified:
    [verified] = verify(shop, model)
    return verified


def add(shop, name: str, weights: bytes = b"weights", **behaviour: Any) -> None:
    """Add a model whose behaviour ``becomes`` can change though its checkpoint does not."""
    shop.model(name, weights, elsewhere=str(shop.root / f"{name}.json"), **behaviour)


def becomes(shop, name: str, **behaviour: Any) -> None:
    (shop.root / f"{name}.json").write_text(json.dumps(behaviour))


def bundle_of(shop, model: str) -> Path:
    return bundle_path(shop.settings.cache_dir, shop.entry(model).bundle_sha256)


def published(shop) -> list[str]:
    return [entry["model"] for entry in shop.manifest()["entries"]]


def rested(entry: Entry) -> tuple[object, ...]:
    """Return what a failed verification must not change."""
    return (entry.status, entry.reason, entry.code, entry.record, entry.bundle_sha256, entry.log)


def moves(shop, model: str) -> list[str]:
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        return [event.to_status.value for event in database.events(model)]


def test_a_clean_proof_is_recorded_with_its_time_and_published(shop) -> None:
    shop.model("m1")
    shop.scan()
    before = shop.entry("m1")

    verified = verify_one(shop, "m1")

    assert verified.is_warm
    assert verified.sentence() == "m1: warm, proven again in 3 fresh processes, first call 1.0 s"
    after = shop.entry("m1")
    assert after.status is Status.WARM
    assert after.bundle_sha256 == before.bundle_sha256
    assert after.record["proof"]["proved_at"] > before.record["proof"]["proved_at"]
    [entry] = shop.manifest()["entries"]
    assert entry["proof"]["proved_at"] == after.record["proof"]["proved_at"]
    assert entry["shape_sets"] == before.record["shape_sets"]
    assert moves(shop, "m1")[:2] == ["warm", "proving"]
    assert shop.builds("m1") == ["compiled"]
    assert [step.what for step in shop.steps if step.what == "prove"] == ["prove"] * 3
    assert shop.scan().all_warm  # and leaves nothing to do
    assert [step.what for step in shop.steps if step.what == "prove"] == []


def test_an_alias_is_followed_and_a_sharer_is_proven_in_every_order(shop) -> None:
    shop.model("m1")
    shop.model("m2", b"other weights")
    (shop.root / "registry" / "latest").symlink_to("m2")
    shop.scan()
    assert shop.entry("m2").record["proof"]["orders"] == 1
    verified = verify_one(shop, "latest")
    assert (verified.model, verified.processes) == ("m2", 3)
    assert shop.entry("m2").record["proof"]["orders"] == 3


@pytest.mark.parametrize(
    ("behaviour", "code", "words"),
    [
        ({"report": {"compilers_started": 3}}, "compiler_started", "3 compiler(s) were started"),
        ({"report": {"graphs_bypassed": 1}}, "fx_bypass", "told by the fake"),
        ({"outputs": "differ"}, "outputs_differ", "differ from eager"),
        ({"graph": "another"}, "graph_compiled", "1 graph(s) were compiled again"),
        ({"order_report": {"files_changed": 1}}, "files_changed", "when another call comes first"),
    ],
)
def test_a_verdict_takes_the_bundle_out_of_use_and_queues_the_entry(
    shop, behaviour, code, words
) -> None:
    add(shop, "m1")
    shop.model("m2", b"other", graph="two")
    shop.scan()
    bundle = bundle_of(shop, "m1")
    becomes(shop, "m1", **behaviour)

    verified = verify_one(shop, "m1")

    assert (verified.outcome, verified.code) == (Outcome.SET_ASIDE, code)
    assert words in verified.sentence()
    assert verified.sentence().endswith(
        "; it left the manifest, and the next `prewarm scan` builds it again"
    )
    entry = shop.entry("m1")
    assert (entry.status, entry.code) == (Status.QUEUED, "quarantined")
    assert words in entry.reason
    assert published(shop) == ["m2"]
    assert not bundle.exists()
    assert read_quarantine(shop.settings.state_dir).bundles == 1


def test_a_bundle_that_failed_is_built_once_again_and_not_for_ever(shop) -> None:
    add(shop, "m1")
    shop.scan()
    becomes(shop, "m1", report={"compilers_started": 3})
    verify(shop, "m1")
    shop.scan()
    assert shop.builds("m1") == ["compiled"] * 2
    partial = shop.entry("m1")
    assert (partial.status, partial.code) == (Status.PARTIAL, "compiler_started")

    verified = verify_one(shop, "m1")

    assert verified.outcome is Outcome.UNCHANGED
    assert not verified.is_warm
    assert verified.sentence().startswith("m1: still partial: at a start from the bundle 3 compil")
    assert rested(shop.entry("m1")) == rested(partial)
    assert published(shop) == ["m1"]
    shop.scan()
    assert shop.builds("m1") == ["compiled"] * 2

    becomes(shop, "m1")  # what was in the way is gone: no build is needed to see it
    assert verify_one(shop, "m1").is_warm
    assert shop.entry("m1").status is Status.WARM


def test_a_caveat_of_the_build_stays_what_it_is(shop) -> None:
    shop.model("m1", compile={"max-autotune": "out_of_memory"})
    shop.scan()
    before = shop.entry("m1")
    verified = verify_one(shop, "m1")
    assert (verified.outcome, verified.code) == (Outcome.UNCHANGED, "mode_fallback")
    assert rested(shop.entry("m1")) == rested(before)


@pytest.mark.parametrize(
    ("behaviour", "code", "status"),
    [
        ({"prove": "no_space"}, "no_space", Status.WARM),
        ({"prove": "out_of_memory"}, "out_of_memory", Status.WARM),
        ({"prove": "kill"}, "killed", Status.WARM),
        ({"prove": "exit"}, "ended_early", Status.PARTIAL),
        ({"report": {"fx_misses": None}}, "cannot_tell", Status.WARM),
    ],
)
def test_a_proof_without_a_verdict_leaves_the_entry_as_it_was(
    shop, behaviour, code, status
) -> None:
    add(shop, "m1", **({} if status is Status.WARM else {"failed": ["more"]}))
    shop.scan()
    before = shop.entry("m1")
    assert before.status is status
    manifest = shop.manifest()
    becomes(shop, "m1", **behaviour)

    verified = verify_one(shop, "m1")

    assert (verified.outcome, verified.code) == (Outcome.NOT_PROVEN, code)
    assert verified.sentence().startswith("m1: not proven again: ")
    assert verified.sentence().endswith(f"; it stays {status}")
    assert rested(shop.entry("m1")) == rested(before)
    assert shop.manifest() == manifest
    assert bundle_of(shop, "m1").is_file()


def test_one_that_hangs_to_its_deadline_does_not_hold_back_the_next(shop) -> None:
    shop.declare(timeout_s=1)
    add(shop, "m1")
    shop.model("m2", b"other", graph="two")
    shop.scan()
    becomes(shop, "m1", prove="hang_with_others")
    first, second = verify(shop)
    assert (first.model, first.code, first.status) == ("m1", "timeout", Status.WARM)
    assert second.is_warm


def test_damage_that_shows_in_no_size_or_time_is_found(shop) -> None:
    shop.model("m1")
    shop.scan()
    bundle = bundle_of(shop, "m1")
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        data = bytearray(bundle.read_bytes())
        data[len(data) // 2] ^= 1
        bundle.write_bytes(data)
        found = bundle.stat()
        database.put_file_digest(
            bundle,
            size_bytes=found.st_size,
            mtime_ns=found.st_mtime_ns,
            ctime_ns=found.st_ctime_ns,
            inode=found.st_ino,
            digest=shop.entry("m1").bundle_sha256,
        )

    verified = verify_one(shop, "m1")

    assert (verified.outcome, verified.code) == (Outcome.SET_ASIDE, "corrupt")
    assert verified.reason.startswith("its bundle is damaged (sha256 ")
    assert [step.what for step in shop.steps if step.what == "prove"] == []
    assert published(shop) == []
    assert read_quarantine(shop.settings.state_dir).bundles == 1
    assert shop.scan().all_warm
    assert shop.builds("m1") == ["compiled"] * 2


def test_damage_in_the_middle_of_the_proof_is_found_too(shop, tmp_path: Path) -> None:
    shop.model("m1")
    shop.scan()
    bundle = bundle_of(shop, "m1")

    class Damaging(list):
        def append(self, step) -> None:
            if "process 2" in step.detail:
                os.truncate(bundle, 10)

    shop.steps = Damaging()
    verified = verify_one(shop, "m1")
    assert (verified.outcome, verified.code) == (Outcome.SET_ASIDE, "corrupt")
    assert (shop.entry("m1").status, published(shop)) == (Status.QUEUED, [])


# -- nothing to prove


def change_weights(shop) -> None:
    (shop.root / "registry" / "m1" / "model.bin").write_bytes(b"retrained")


def change_declaration(shop) -> None:
    shop.declare(change=("batch = [3]", "batch = [3, 4]"))


def change_source(shop) -> None:
    (shop.root / "registry" / "src" / "fake.py").write_text("VERSION = 2\n")


def break_declaration(shop) -> None:
    shop.declare(change=("dynamic = false", "dynamics = false"))


def change_threads(shop) -> None:
    shop.declare(change=('device = "cpu"', 'device = "cpu"\nthreads = 3'))


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (change_weights, "stale", "the checkpoint's content changed since it was proven"),
        (change_declaration, "stale", "the declaration changed since it was proven"),
        (change_source, "stale", "the model's source or architecture changed since it was"),
        (break_declaration, "bad_declaration", "dynamics"),
        (change_threads, "environment_differs", "another environment alone: threads is 3 here"),
    ],
)
def test_what_changed_is_told_and_not_proven(shop, change, code, words) -> None:
    source = shop.root / "registry" / "src"
    source.mkdir()
    (source / "fake.py").write_text("VERSION = 1\n")
    path = ('factory = "fake:build"', 'factory = "fake:build"\npath = ["src"]')
    shop.declare(change=path)
    shop.model("m1")
    shop.scan()
    before, manifest = shop.entry("m1"), shop.manifest()
    change(shop)
    if change not in (change_weights, change_source):
        file = shop.root / "registry" / "prewarm.toml"
        file.write_text(file.read_text().replace(*path))

    verified = verify_one(shop, "m1")

    assert (verified.outcome, verified.code) == (Outcome.NOT_TRIED, code)
    assert words in verified.sentence()
    assert verified.sentence().count("\n") == 0
    assert rested(shop.entry("m1")) == rested(before)
    assert shop.manifest() == manifest
    assert [step.what for step in shop.steps if step.what == "prove"] == []


def test_an_entry_that_is_not_published_is_told_with_its_reason(shop) -> None:
    shop.model("m1", compile="exit")
    shop.model("m2", b"other", graph="two")
    shop.scan("m1")
    first = verify_one(shop, "m1")
    assert first.outcome is Outcome.NOT_TRIED
    assert first.sentence().startswith("m1: is failed: it ended with exit code 3")
    second = verify_one(shop, "m2")
    assert second.sentence() == "m2: is not published; run `prewarm scan`"
    with pytest.raises(PrewarmError, match="nothing is published for this environment"):
        verify(shop)


def test_without_a_model_all_that_is_published_here_is_proven(shop) -> None:
    shop.model("m1")
    shop.model("m2", b"other", graph="two")
    shop.model("m3", b"and another", graph="three", compile="exit")
    gone = shop.model("m4", b"a fourth", graph="four")
    shop.scan()
    shutil.rmtree(gone)
    told = {one.model: one for one in verify(shop)}
    assert told.keys() == {"m1", "m2", "m4"}
    assert told["m1"].is_warm and told["m2"].is_warm
    assert told["m4"].code == "checkpoint_gone"


def test_what_cannot_be_looked_for_is_told(shop) -> None:
    with pytest.raises(RegistryError, match="m9: no such checkpoint"):
        verify(shop, "m9")
    with pytest.raises(ConfigError, match="PREWARM_REGISTRY"):
        verify(shop.with_settings(registry=None))


def test_a_checkpoint_that_changes_under_its_proof_costs_no_bundle(shop) -> None:
    add(shop, "m1")
    shop.scan()
    before = shop.entry("m1")
    becomes(shop, "m1", report={"compilers_started": 3})

    class Changing(list):
        def append(self, step) -> None:
            if step.what == "prove":
                change_weights(shop)

    shop.steps = Changing()
    verified = verify_one(shop, "m1")
    assert (verified.outcome, verified.code) == (Outcome.NOT_PROVEN, "changed")
    assert rested(shop.entry("m1")) == rested(before)
    assert bundle_of(shop, "m1").is_file()


# -- the end of the run in its middle


def test_an_interrupt_leaves_the_entry_as_it_was(shop) -> None:
    add(shop, "m1")
    shop.scan()
    before = shop.entry("m1")
    becomes(shop, "m1", prove="hang")

    class Stopping(list):
        def append(self, step) -> None:
            if step.what == "cold":  # the child is at work
                shop.stop.set()

    shop.steps = Stopping()
    with pytest.raises(Interrupted, match="m1 stays warm"):
        verify(shop, "m1")
    assert rested(shop.entry("m1")) == rested(before)
    assert published(shop) == ["m1"]


def test_after_a_kill_the_next_scan_proves_it_again_without_a_build(shop, wait_until) -> None:
    marks = shop.root / "marks"
    marks.mkdir()
    add(shop, "m1")
    shop.scan()
    becomes(shop, "m1", marks=str(marks), hold=["prove-full"])
    settings = shop.settings
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "prewarm.cli", "verify", "m1"),
            *("--registry", str(settings.registry), "--cache-dir", str(settings.cache_dir)),
            *("--state-dir", str(settings.state_dir)),
        ],
        env=os.environ | {"PREWARM_BUILDER": "test", "PREWARM_SETTLE_S": "0.05"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until((marks / "prove-full.reached").exists)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert shop.entry("m1").status is Status.PROVING
    assert published(shop) == ["m1"]
    becomes(shop, "m1")

    verified = verify_one(shop, "m1")
    assert verified.outcome is Outcome.NOT_TRIED
    assert verified.sentence().startswith("m1: is queued: the process that worked on it ended")

    assert shop.scan().all_warm
    assert shop.builds("m1") == ["compiled"]
    assert published(shop) == ["m1"]
    assert bundle_of(shop, "m1").is_file()


@pytest.mark.parametrize("step", ["set aside", "queued"])
def test_after_a_crash_while_a_bundle_is_set_aside_it_is_not_shared_again(
    shop, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    from prewarm.build import quarantine

    add(shop, "m1")
    shop.scan()
    becomes(shop, "m1", report={"compilers_started": 3})

    class Crash(BaseException):
        pass

    def crash(*_: object, **__: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        # A crash makes no move any more.
        move = Database.move
        if step == "set aside":
            patched.setattr(quarantine, "publish", crash)
        patched.setattr(
            Database,
            "move",
            lambda self, entry_id, to, **more: (
                crash() if to is Status.QUEUED else move(self, entry_id, to, **more)
            ),
        )
        with pytest.raises(Crash):
            verify(shop, "m1")
    assert shop.entry("m1").status is Status.PROVING
    becomes(shop, "m1")
    assert shop.scan().all_warm
    assert shop.builds("m1") == ["compiled"] * 2
