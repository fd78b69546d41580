"""This builder's manifest: written when there is news, signed by its key, true and portable."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

from prewarm.build import publish
from prewarm.store.database import Database
from prewarm.store.manifest import manifest_path, read_manifest, read_manifests
from prewarm.store.signing import load_or_create_key


def path_of(shop):
    return manifest_path(shop.settings.cache_dir, "test")


def test_it_is_signed_by_the_key_of_the_state_directory(shop) -> None:
    shop.model("m1")
    shop.scan()
    key = load_or_create_key(shop.settings.state_dir, None)
    read = read_manifest(path_of(shop))
    assert read.signed_by([key.public])
    assert read.manifest.environments.keys() == {read.manifest.entries[0].environment}


def test_without_news_not_a_byte_is_written(shop) -> None:
    shop.model("m1")
    shop.scan()
    before = path_of(shop).stat()
    shop.scan()
    after = path_of(shop).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_what_it_names_lasts_in_the_database_before_it_is_written(shop, monkeypatch) -> None:
    order: list[str] = []

    def noted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            order.append(name)
            return real(*args)

        return call

    lasting = noted("lasting", Database.make_lasting)
    monkeypatch.setattr(Database, "make_lasting", lasting)
    written = noted("written", publish.write_manifest)
    monkeypatch.setattr(publish, "write_manifest", written)
    shop.model("m1")
    shop.scan()
    assert order == ["lasting", "written"] * (len(order) // 2) and order


def test_a_failed_neighbour_is_no_news(shop) -> None:
    shop.model("m1")
    shop.scan()
    before = shop.manifest()
    shop.model("m2", b"other weights", graph="two", compile="exit")
    shop.scan()
    assert shop.manifest() == before


def test_generations_rise_and_the_entries_follow(shop) -> None:
    shop.model("m1")
    shop.scan()
    first = shop.manifest()
    second_model = shop.model("m2", b"other weights")
    shop.scan()
    second = shop.manifest()
    shutil.rmtree(second_model)
    shop.scan()
    third = shop.manifest()
    assert first["generation"] < second["generation"] < third["generation"]
    assert [entry["model"] for entry in second["entries"]] == ["m1", "m2"]
    assert third["entries"] == first["entries"]


def test_no_absolute_path_stands_in_it(shop) -> None:
    shop.declare(change=("[compile]", f'path = ["{shop.root}/registry"]\n[compile]'))
    shop.model("m1", report={"bypass_reasons": [f"in {shop.root}/registry/m1/model.py:3"]})
    shop.scan()
    text = path_of(shop).read_text()
    assert str(shop.root) not in text
    assert "fake_child.py" not in text


def test_a_manifest_that_somebody_else_signed_is_written_anew(shop) -> None:
    shop.model("m1")
    shop.scan()
    shutil.rmtree(shop.settings.state_dir)
    shop.scan()
    key = load_or_create_key(shop.settings.state_dir, None)
    read = read_manifest(path_of(shop))
    assert read.signed_by([key.public])
    assert read.manifest.generation > 1


def test_a_torn_manifest_is_replaced_by_a_whole_one(shop) -> None:
    shop.model("m1")
    shop.scan()
    whole = path_of(shop).read_bytes()
    path_of(shop).write_bytes(whole[: len(whole) // 2])
    shop.scan()
    assert [entry["model"] for entry in shop.manifest()["entries"]] == ["m1"]


def test_two_builders_publish_side_by_side(shop) -> None:
    shop.model("m1")
    shop.scan()
    other = shop.with_settings(builder="other", state_dir=shop.root / "other-state")
    assert other.scan().all_warm
    manifests, problems = read_manifests(shop.settings.cache_dir)
    assert problems == ()
    assert [read.manifest.builder for read in manifests] == ["other", "test"]
    bundles = {entry.bundle.sha256 for read in manifests for entry in read.manifest.entries}
    assert len(bundles) == 1
    assert other.builds("m1") == []


def test_what_no_manifest_names_is_collected_after_the_grace_period(shop) -> None:
    directory = shop.model("m1")
    shop.scan()
    shutil.rmtree(directory)
    shop.scan()
    (bundle,) = (shop.settings.cache_dir / "bundles").glob("sha256/*/*.tar.zst")
    assert bundle.is_file()
    shop.with_settings(grace_s=0.0).scan()
    assert not bundle.exists()
    assert json.loads(path_of(shop).read_text())["signed"]["entries"] == []
