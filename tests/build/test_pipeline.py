"""The pipeline of an entry: shared, built, proven, fallen, refused, and when it is done again."""

from __future__ import annotations

import contextlib
import json
import shutil
from typing import Any

import pytest

from prewarm.build import pipeline
from prewarm.errors import NoSpace, RegistryError
from prewarm.store.bundle import bundle_path
from prewarm.store.database import Database
from prewarm.store.status import Status


def test_a_checkpoint_is_built_proven_and_published(shop) -> None:
    shop.model("m1")
    result = shop.scan()
    assert result.all_warm
    entry = shop.entry("m1")
    assert shop.builds("m1") == ["compiled"]
    assert bundle_path(shop.settings.cache_dir, entry.bundle_sha256).is_file()
    (published,) = shop.manifest()["entries"]
    assert (published["model"], published["status"]) == ("m1", "warm")
    assert published["covers"] == "any order"
    assert published["proof"]["orders"] == 3  # the declared order, and each other call first
    assert [step.what for step in shop.steps if step.what == "prove"] == ["prove"] * 3


def test_a_second_checkpoint_is_proven_and_not_compiled(shop) -> None:
    shop.model("m1")
    shop.scan()
    shop.model("m2", b"other weights")
    assert shop.scan().all_warm
    assert shop.builds("m2") == []
    assert shop.entry("m2").bundle_sha256 == shop.entry("m1").bundle_sha256
    assert [step.what for step in shop.steps if step.what == "prove"] == ["prove"]


def test_a_graph_that_depends_on_weights_gets_a_build_of_its_own(shop) -> None:
    shop.model("m1", graph="one")
    shop.scan()
    shop.model("m2", b"other weights", graph="two")
    assert shop.scan().all_warm
    first, second = shop.entry("m1"), shop.entry("m2")
    assert shop.builds("m2") == ["compiled"]
    assert second.own_graph and not first.own_graph
    assert first.bundle_sha256 != second.bundle_sha256
    assert first.build_key != second.build_key
    assert second.code == "own_graph"
    assert "depends on weight values" in second.reason
    assert "1 graph(s) were compiled again" in second.reason
    assert shop.scan().all_warm  # and it is not done again
    assert shop.builds("m2") == ["compiled"]


def test_the_mode_ladder_ends_in_a_partial_entry_that_says_so(shop) -> None:
    shop.model("m1", compile={"max-autotune": "out_of_memory"})
    assert not shop.scan().all_warm
    entry = shop.entry("m1")
    assert shop.builds("m1") == ["failed", "compiled"]
    assert (entry.status, entry.code) == (Status.PARTIAL, "mode_fallback")
    assert "max-autotune-no-cudagraphs" in entry.reason
    assert "out_of_memory told by the fake" in entry.reason
    assert shop.manifest()["entries"][0]["compile"]["mode"] == "max-autotune-no-cudagraphs"


def test_an_error_of_the_model_does_not_go_down_the_ladder(shop) -> None:
    shop.model("m1", compile="exit")
    shop.scan()
    assert shop.builds("m1") == ["failed"]
    assert (shop.entry("m1").status, shop.entry("m1").code) == (Status.FAILED, "ended_early")


@pytest.mark.parametrize("error", [NoSpace("told by the test"), OSError("told by the test")])
def test_a_compile_run_that_no_child_ended_is_over_all_the_same(
    shop, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    shop.model("m")
    monkeypatch.setattr(pipeline, "ask_compile", refuse)
    with contextlib.suppress(OSError):
        shop.scan()
    assert shop.builds("m") == ["interrupted"]


def test_a_hang_ends_at_the_deadline_in_each_mode(shop) -> None:
    shop.declare(timeout_s=1)
    shop.model("m1", compile="hang")
    shop.scan()
    assert shop.builds("m1") == ["failed"] * 3
    assert shop.entry("m1").code == "timeout"


def test_a_killed_build_is_tried_again_under_its_mode_before_a_lighter_one(shop) -> None:
    shop.model("m1", compile={"max-autotune": "kill"})
    shop.scan()
    assert shop.builds("m1") == ["failed", "failed", "compiled"]
    assert shop.entry("m1").code == "mode_fallback"


@pytest.mark.parametrize(
    ("behaviour", "status", "code", "words"),
    [
        ({"report": {"graphs_bypassed": 1}}, Status.UNCACHEABLE, "fx_bypass", "told by the fake"),
        ({"report": {"aot_bypassed": 2}}, Status.PARTIAL, "aot_bypass", "told by the fake"),
        ({"report": {"compilers_started": 3}}, Status.PARTIAL, "compiler_started", "3 compiler"),
        ({"report": {"limits_hit": 1}}, Status.PARTIAL, "recompile_limit", "recompile limit"),
        ({"report": {"fx_misses": None}}, Status.PARTIAL, "cannot_tell", "fx_misses"),
        ({"outputs": "differ"}, Status.FAILED, "outputs_differ", "differ from eager"),
        ({"again_failed": "rows: boom"}, Status.PARTIAL, "recompiled", "boom"),
        ({"failed": ["more"]}, Status.PARTIAL, "shape_set_failed", "shape set more failed"),
        ({"prove": "kill"}, Status.FAILED, "killed", "SIGKILL"),
        ({"prove": "rubbish"}, Status.FAILED, "rubbish", "no message of the protocol"),
    ],
)  # fmt: skip
def test_what_a_proof_leads_to(shop, behaviour, status, code, words) -> None:
    shop.model("m1", **behaviour)
    shop.scan()
    entry = shop.entry("m1")
    assert (entry.status, entry.code) == (status, code)
    assert words in entry.reason
    named = [published["model"] for published in shop.manifest()["entries"]]
    assert named == (["m1"] if status in (Status.WARM, Status.PARTIAL) else [])


def test_one_failed_entry_does_not_stop_the_others(shop) -> None:
    shop.model("m1", compile="exit")
    shop.model("m2", b"longer weights", graph="two")
    shop.scan()
    assert shop.entry("m1").status is Status.FAILED
    assert shop.entry("m2").status is Status.WARM


def test_an_uncacheable_graph_is_not_built_again_and_again(shop) -> None:
    shop.model("m1", report={"graphs_bypassed": 1})
    shop.scan()
    shop.scan()
    assert shop.builds("m1") == ["compiled"]


def test_a_changed_declaration_is_built_again_from_the_nearest_bundle(shop) -> None:
    shop.model("m1")
    shop.scan()
    before = shop.entry("m1")
    shop.declare(change=("batch = [3]", "batch = [3, 4]"))
    assert shop.scan().all_warm
    after = shop.entry("m1")
    assert shop.builds("m1") == ["compiled", "compiled"]
    assert after.build_key != before.build_key


def test_a_renamed_shape_set_is_no_other_build(shop) -> None:
    shop.model("m1")
    shop.scan()
    before = shop.entry("m1")
    shop.declare(change=('name = "more"', 'name = "further"'))
    shop.scan()
    assert shop.entry("m1").build_key == before.build_key


def test_changed_weights_are_proven_again_and_not_compiled(shop) -> None:
    shop.model("m1")
    shop.scan()
    shop.model("m1", b"retrained")
    assert shop.scan().all_warm
    assert shop.builds("m1") == ["compiled"]
    assert shop.manifest()["entries"][0]["checkpoint"] == shop.entry("m1").checkpoint_digest


def test_a_lost_bundle_is_built_again(shop) -> None:
    shop.model("m1")
    shop.scan()
    bundle_path(shop.settings.cache_dir, shop.entry("m1").bundle_sha256).unlink()
    assert shop.scan().all_warm
    assert bundle_path(shop.settings.cache_dir, shop.entry("m1").bundle_sha256).is_file()


def test_a_checkpoint_that_is_gone_is_retired_and_leaves_the_manifest(shop) -> None:
    directory = shop.model("m1")
    shop.model("m2", b"other", graph="two")
    shop.scan()
    shutil.rmtree(directory)
    assert shop.scan().retired == ("m1",)
    assert shop.entry("m1").status is Status.RETIRED
    assert [entry["model"] for entry in shop.manifest()["entries"]] == ["m2"]


def test_an_empty_state_adopts_what_is_published_and_proves_it(shop) -> None:
    shop.model("m1")
    shop.scan()
    sha256 = shop.entry("m1").bundle_sha256
    fresh = shop.with_settings(state_dir=shop.root / "new-state")
    assert fresh.scan().all_warm
    assert fresh.builds("m1") == []
    assert fresh.entry("m1").bundle_sha256 == sha256


def test_an_adoption_that_ended_in_the_middle_is_made_anew(
    shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("m1", "m2"):
        shop.model(name, name.encode(), graph=name)
    shop.scan()
    fresh = shop.with_settings(state_dir=shop.root / "new-state")
    real, adopted = Database.add_bundle, []

    def refuse(*args: Any, **fields: Any) -> Any:
        adopted.append(args)
        if len(adopted) == 2:
            raise OSError("told by the test")
        return real(*args, **fields)

    with monkeypatch.context() as patch:
        patch.setattr(Database, "add_bundle", refuse)
        with pytest.raises(OSError, match="told by the test"):
            fresh.scan()
    assert fresh.scan().all_warm
    assert fresh.builds("m1") == fresh.builds("m2") == []


def test_what_one_scan_of_an_empty_state_leaves_out_the_next_one_adopts(shop) -> None:
    shop.model("m1")
    shop.model("m2", b"other", graph="two")
    shop.scan()
    fresh = shop.with_settings(state_dir=shop.root / "new-state")
    assert fresh.scan("m1").all_warm
    assert fresh.scan().all_warm
    assert fresh.builds("m1") == fresh.builds("m2") == []


def test_a_cache_that_others_can_write_is_not_adopted(shop) -> None:
    shop.model("m1")
    shop.scan()
    (shop.settings.cache_dir / "manifests").chmod(0o777)
    fresh = shop.with_settings(state_dir=shop.root / "new-state")
    assert fresh.scan().all_warm
    assert fresh.builds("m1") == ["compiled"]


def test_a_manifest_is_not_written_again_without_news(shop) -> None:
    shop.model("m1")
    shop.scan()
    before = shop.manifest()["generation"]
    shop.scan()
    assert shop.manifest()["generation"] == before
    shop.model("m2", b"other")
    shop.scan()
    assert shop.manifest()["generation"] > before


def test_only_the_named_models_are_scanned(shop) -> None:
    shop.model("m1")
    shop.model("m2", b"other", graph="two")
    result = shop.scan("m2")
    assert [entry.model for entry in result.entries] == ["m2"]
    with pytest.raises(RegistryError, match="m3: no such checkpoint"):
        shop.scan("m3")


def test_a_fallen_mode_is_not_called_warm_by_whoever_shares_it(shop) -> None:
    shop.model("m1", compile={"max-autotune": "out_of_memory"})
    shop.scan()
    shop.model("m2", b"other weights")
    assert not shop.scan().all_warm
    entry = shop.entry("m2")
    assert shop.builds("m2") == []
    assert (entry.status, entry.code) == (Status.PARTIAL, "mode_fallback")
    assert "out_of_memory told by the fake" in entry.reason


def test_a_bundle_without_a_shape_set_is_not_called_warm_by_whoever_shares_it(shop) -> None:
    shop.model("m1", failed=["more"])
    shop.scan()
    shop.model("m2", b"other weights")
    assert not shop.scan().all_warm
    entry = shop.entry("m2")
    assert (entry.status, entry.code) == (Status.PARTIAL, "shape_set_failed")
    assert "shape set more failed: ValueError" in entry.reason


def test_a_bundle_that_failed_in_another_order_is_tried_in_every_order_again(shop) -> None:
    shop.model("m1", order_report={"compilers_started": 1})
    shop.scan()
    assert shop.entry("m1").code == "compiler_started"
    shop.model("m2", b"other weights", order_report={"compilers_started": 1})
    assert not shop.scan().all_warm
    entry = shop.entry("m2")
    assert (entry.status, entry.code) == (Status.PARTIAL, "compiler_started")
    assert "when another call comes first" in entry.reason


def test_a_graph_of_its_own_keeps_its_reason_when_it_is_proven_again(shop) -> None:
    shop.model("m1", graph="one")
    shop.scan()
    shop.model("m2", b"other weights", graph="two")
    shop.scan()
    reason = shop.entry("m2").reason
    fresh = shop.with_settings(state_dir=shop.root / "new-state")
    assert fresh.scan().all_warm
    entry = fresh.entry("m2")
    assert (entry.own_graph, entry.code, entry.reason) == (True, "own_graph", reason)


def test_a_lost_bundle_of_its_own_is_built_again_under_its_own_key(shop) -> None:
    shop.model("m1", graph="one")
    shop.scan()
    shop.model("m2", b"other weights", graph="two")
    shop.scan()
    before = shop.entry("m2")
    bundle_path(shop.settings.cache_dir, before.bundle_sha256).unlink()
    assert shop.scan().all_warm
    after = shop.entry("m2")
    assert (after.own_graph, after.build_key) == (True, before.build_key)


def test_source_that_changes_during_the_build_is_not_published(shop, wait_until) -> None:
    import threading

    source = shop.root / "registry" / "src"
    source.mkdir()
    (source / "fake.py").write_text("VERSION = 1\n")
    shop.declare(change=('factory = "fake:build"', 'factory = "fake:build"\npath = ["src"]'))
    marks = shop.root / "marks"
    marks.mkdir()
    shop.model("m1", marks=str(marks), hold=["compile-begun"])

    def edit() -> None:
        wait_until((marks / "compile-begun.reached").exists)
        (source / "fake.py").write_text("VERSION = 2\n")
        (marks / "compile-begun.go").touch()

    editor = threading.Thread(target=edit)
    editor.start()
    shop.scan()
    editor.join()
    entry = shop.entry("m1")
    assert (entry.status, entry.code) == (Status.FAILED, "changed")
    assert shop.manifest()["entries"] == []
    assert shop.scan().all_warm


def test_a_proof_has_a_home_a_temp_and_a_working_directory_of_its_own(shop) -> None:
    # Another torch process writes to the shared default directory, which is watched as well.
    shop.model("m1", tell_places=str(shop.root / "places"))
    assert shop.scan().all_warm
    places = json.loads((shop.root / "places").read_text())
    work = str(shop.settings.state_dir / "work" / "proof-")
    assert all(places[name].startswith(work) for name in ("HOME", "TMPDIR", "cwd"))
