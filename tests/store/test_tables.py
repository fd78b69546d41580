"""The tables with little logic: checkpoints, builds, bundles, environments, files, events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prewarm.errors import LostLease
from prewarm.store.database import Database
from prewarm.store.status import Status

At = Callable[[float], str]


def test_see_checkpoint_replaces_what_was_seen(database: Database, at: At) -> None:
    database.see_checkpoint("m", Path("/a"), digest=None, architecture=None, at=at(0))
    database.see_checkpoint(
        "m", Path("/b"), digest="d", architecture="a", aliases=["x", "ü"], size_bytes=5, at=at(1)
    )
    [found] = database.checkpoints()
    assert (found.path, found.digest, found.architecture) == ("/b", "d", "a")
    assert (found.aliases, found.size_bytes) == (("x", "ü"), 5)


def test_a_checkpoint_is_found_by_its_name_before_an_alias(database: Database, at: At) -> None:
    for name, aliases in (("a/1", ["a/latest"]), ("b/1", ["a/1", "b/latest"])):
        database.see_checkpoint(
            name, Path("/"), digest=None, architecture=None, aliases=aliases, at=at(0)
        )
    found = [database.checkpoint_named(name) for name in ("a/1", "a/latest", "b/latest", "a")]
    assert [one and one.name for one in found] == ["a/1", "a/1", "b/1", None]


def test_a_checkpoint_that_is_gone_is_not_found(database: Database, at: At) -> None:
    database.see_checkpoint("m", Path("/"), digest=None, architecture=None, at=at(0))
    database.retire_missing([], at=at(1))
    assert database.checkpoint_named("m") is None


def test_build_ends_once(database: Database, at: At) -> None:
    entry = database.put_entry("m", "e", at=at(0))
    build_id = database.start_build(entry.id, "key", at=at(1), log="l")
    database.end_build(
        build_id, "failed", at=at(2), reason="why", peak_memory_bytes=2**40, mode="default"
    )
    with pytest.raises(LostLease, match="is over already"):
        database.end_build(build_id, "warm", at=at(3))
    [build] = database.builds(entry.id)
    assert (build.build_key, build.started_at, build.ended_at) == ("key", at(1), at(2))
    assert (build.outcome, build.reason, build.mode) == ("failed", "why", "default")
    assert (build.peak_memory_bytes, build.log) == (2**40, "l")


def test_build_of_an_entry_that_is_not_there_is_refused(database: Database, at: At) -> None:
    with pytest.raises(RuntimeError, match="FOREIGN KEY"):
        database.start_build(7, "key", at=at(0))


def _bundle(sha256: str, key: str, **others: Any) -> dict[str, Any]:
    return {
        "sha256": sha256,
        "build_key": key,
        "architecture": "a",
        "environment_id": "e",
        "size_bytes": 1,
        "unpacked_bytes": 2,
        "files": 3,
        "record": None,
        **others,
    }


def test_bundles_for_key_are_the_good_ones_newest_first(database: Database, at: At) -> None:
    assert database.bundles_for_key("k") == ()
    database.add_bundle(**_bundle("one", "k"), at=at(0))
    database.add_bundle(**_bundle("two", "k", record={"a": [1]}), at=at(1))
    database.add_bundle(**_bundle("three", "other"), at=at(2))
    assert [row.sha256 for row in database.bundles_for_key("k")] == ["two", "one"]
    assert database.bundles_for_key("k")[0].record == {"a": [1]}
    database.quarantine("two", reason="damaged", at=at(3))
    assert [row.sha256 for row in database.bundles_for_key("k")] == ["one"]
    database.add_bundle(**_bundle("two", "k"), at=at(4))
    [found, _] = database.bundles_for_key("k")
    assert (found.sha256, found.quarantined_at, found.record) == ("two", None, None)


def test_equal_bundle_of_two_keys_answers_both_and_is_quarantined_for_both(
    database: Database, at: At
) -> None:
    database.add_bundle(**_bundle("one", "k"), at=at(0))
    database.add_bundle(**_bundle("one", "other"), at=at(0))
    assert database.keys_of_bundle("one") == ("k", "other")
    assert database.bundles_for_key("k") and database.bundles_for_key("other")
    database.quarantine("one", reason="damaged", at=at(1))
    assert database.bundles_for_key("k") == database.bundles_for_key("other") == ()
    assert database.is_quarantined("one", "k")
    assert [row.quarantine_reason for row in database.quarantined_bundles()] == ["damaged"] * 2


def test_a_bundle_packed_anew_for_one_key_is_in_quarantine_for_the_other_alone(
    database: Database, at: At
) -> None:
    database.add_bundle(**_bundle("one", "k"), at=at(0))
    database.add_bundle(**_bundle("one", "other"), at=at(0))
    database.quarantine("one", reason="damaged", at=at(1))
    database.add_bundle(**_bundle("one", "k"), at=at(2))
    assert not database.is_quarantined("one", "k")
    assert database.is_quarantined("one", "other")
    assert database.quarantined_bundles() == ()


def test_nearest_bundle_is_the_newest_of_architecture_and_environment(
    database: Database, at: At
) -> None:
    database.add_bundle(**_bundle("one", "k1"), at=at(0))
    database.add_bundle(**_bundle("two", "k2"), at=at(0))
    database.add_bundle(**_bundle("else", "k3", environment_id="other"), at=at(9))
    found = database.nearest_bundle("a", "e")
    assert found is not None
    assert found.sha256 == "two"
    assert database.nearest_bundle("b", "e") is None


def test_probe_is_kept_by_fingerprint(database: Database, at: At) -> None:
    for fingerprint in ("one", "two"):
        database.put_environment(
            "e",
            facts={"torch": "2.13", "cxx": None},
            probe={"said": fingerprint},
            fingerprint=fingerprint,
            at=at(0),
        )
    assert database.probe_for("one") == {"said": "one"}
    assert database.probe_for("two") == {"said": "two"}
    assert database.probe_for("three") is None
    assert database.environments() == {"e": {"torch": "2.13", "cxx": None}}


_KEY = {"size_bytes": 1, "mtime_ns": 2, "ctime_ns": 3, "inode": 4}


@pytest.mark.parametrize("changed", list(_KEY))
def test_file_digest_holds_while_nothing_changed(database: Database, changed: str) -> None:
    database.put_file_digest("/f", **_KEY, digest="d")
    assert database.file_digest("/f", **_KEY) == "d"
    other = {**_KEY, changed: 2**62}
    assert database.file_digest("/f", **other) is None
    database.put_file_digest(Path("/f"), **other, digest="new")
    assert database.file_digest("/f", **other) == "new"
    assert database.file_digest("/f", **_KEY) is None
    database.forget_file(Path("/f"))
    assert database.file_digest("/f", **other) is None


def test_events_are_newest_first_by_model_and_limited(database: Database, at: At) -> None:
    for name in ("a", "b"):
        entry = database.put_entry(name, "e", at=at(0))
        database.move(entry.id, Status.FAILED, at=at(1), reason="why", code="c")
    assert [event.model for event in database.events()] == ["b", "b", "a", "a"]
    [last] = database.events("a", limit=1)
    assert (last.from_status, last.to_status) == (Status.QUEUED, Status.FAILED)
    assert database.events("a")[1].from_status is None
