"""Row 16, bundles that lose shapes: no later, poorer run takes the place of a fuller bundle.

Upstream: rbln #805, unsloth-zoo.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from prewarm.store.bundle import bundle_path
from prewarm.store.status import Status

BOTH = ["rows", "more"]


def bundle_of(shop, model: str) -> Path:
    return bundle_path(shop.settings.cache_dir, shop.entry(model).bundle_sha256)


def shape_sets(shop, model: str) -> list[str]:
    """Return the shape sets of a model that are published as warm."""
    [entry] = [entry for entry in shop.manifest()["entries"] if entry["model"] == model]
    return [found["name"] for found in entry["shape_sets"] if found["status"] == "warm"]


def test_a_run_that_would_lose_a_shape_set_shares_the_fuller_bundle_instead(
    shop, fault_row
) -> None:
    shop.model("m1")
    shop.scan()
    full = shop.entry("m1").bundle_sha256
    shop.model("m1", b"retrained", failed=["more"])
    shop.model("m2", b"other weights", failed=["more"])

    assert shop.scan().all_warm

    for model in ("m1", "m2"):
        assert shop.entry(model).bundle_sha256 == full
        assert shape_sets(shop, model) == BOTH
    assert shop.builds("m1") == ["compiled"]
    fault_row(
        row=16,
        case="a later build of the same key in which a shape set fails",
        alone=None,
        said=f"{shop.entry('m1').status}: not built, the fuller bundle was proven again",
    )


def test_a_poorer_bundle_of_another_builder_is_not_what_a_deployment_gets(shop, fault_row) -> None:
    shop.model("m1")
    shop.scan()
    full = bundle_of(shop, "m1")
    other = shop.with_settings(builder="other", state_dir=shop.root / "other-state")
    shop.model("m1", failed=["more"])
    (shop.settings.cache_dir / "manifests").chmod(0o777)  # so that it adopts nothing
    other.scan()
    (shop.settings.cache_dir / "manifests").chmod(0o755)
    poorer = other.entry("m1")
    assert (poorer.status, poorer.code) == (Status.PARTIAL, "shape_set_failed")
    assert poorer.build_key == shop.entry("m1").build_key

    code, line = shop.hook("m1", "--on-miss", "fail")

    assert (code, line) == (0, "")
    assert (shop.root / "private" / shop.entry("m1").bundle_sha256[:32]).is_dir()
    assert full.is_file()
    fault_row(
        row=16,
        case="two builders, one lost a shape set",
        alone=None,
        said=f"the hook takes the fuller one; the other is {poorer.status}: {poorer.reason}",
    )


def test_a_bundle_with_fewer_shapes_does_not_remove_the_fuller_one(shop, fault_row) -> None:
    shop.model("m1")
    shop.scan()
    full, first = bundle_of(shop, "m1"), shop.entry("m1")
    shape_set = (shop.root / "registry" / "prewarm.toml").read_text().rindex("[[shapes]]")
    whole = (shop.root / "registry" / "prewarm.toml").read_text()
    (shop.root / "registry" / "prewarm.toml").write_text(whole[:shape_set])
    shop.model("m1", bulk_bytes=9)
    assert shop.scan().all_warm
    assert shape_sets(shop, "m1") == BOTH[:1]
    assert bundle_of(shop, "m1") != full
    assert full.is_file()
    (shop.root / "registry" / "prewarm.toml").write_text(whole)

    assert shop.scan().all_warm

    assert shop.entry("m1").bundle_sha256 == first.bundle_sha256
    assert shape_sets(shop, "m1") == BOTH
    assert shop.builds("m1") == ["compiled"] * 2  # not a third time
    fault_row(
        row=16,
        case="a declaration with fewer shapes, then the former one again",
        alone=None,
        said=f"{shop.entry('m1').status}: the fuller bundle was kept and is proven, not compiled",
    )


def test_a_build_with_one_more_shape_that_is_killed_leaves_the_old_bundle_published(
    shop, fault_row, wait_until
) -> None:
    shop.model("m1")
    shop.scan()
    full, before = bundle_of(shop, "m1"), shop.manifest()
    marks = shop.root / "marks"
    marks.mkdir()
    shop.declare(change=("batch = [3]", "batch = [3, 4]"))
    shop.model("m1", marks=str(marks), hold=["compile-1"])
    settings = shop.settings
    process = subprocess.Popen(
        [sys.executable, "-m", "prewarm.cli", "scan"],
        env=os.environ
        | {
            "PREWARM_REGISTRY": str(settings.registry),
            "PREWARM_CACHE_DIR": str(settings.cache_dir),
            "PREWARM_STATE_DIR": str(settings.state_dir),
            "PREWARM_BUILDER": settings.builder,
            "PREWARM_SETTLE_S": str(settings.settle_s),
        },
        stderr=subprocess.DEVNULL,
    )
    wait_until((marks / "compile-1.reached").exists)
    process.send_signal(signal.SIGKILL)
    process.wait()

    assert shop.manifest() == before
    assert full.is_file()
    assert shop.hook("m1", "--on-miss", "fail") == (0, "")
    (marks / "compile-1.go").touch()
    assert shop.scan().all_warm
    [entry] = shop.manifest()["entries"]
    assert sum(len(found["calls"]) for found in entry["shape_sets"]) == 4
    fault_row(
        row=16,
        case="killed while a shape was added",
        alone=None,
        said="the hook still starts warm from the old bundle; the next scan builds all four calls",
    )
