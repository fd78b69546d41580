from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from prewarm.registry.presence import RootSeen, judge_root, registry_is_there

ROOT = Path("/mnt/models/registry")
SEEN = RootSeen(
    "/mnt/models/registry", 7, 100, "/mnt/models", frozenset({"/mnt/models/registry/a"})
)


def judge(seen: RootSeen, *, is_empty: bool = False, remembered: RootSeen | None = SEEN):
    return judge_root(ROOT, seen, is_empty=is_empty, remembered=remembered)


def test_the_same_directory_is_there_and_may_be_empty():
    found = judge(SEEN, is_empty=True)
    assert (found.state, found.reason, found.seen) == ("there", None, SEEN)
    assert found.can_tell(Path("/mnt/models/registry/a/m"))


def test_the_first_look_concludes_whatever_it_finds():
    assert judge(SEEN, is_empty=True, remembered=None).is_there


@pytest.mark.parametrize("is_empty", [True, False])
@pytest.mark.parametrize("point", ["/", "/mnt"])
def test_a_mount_that_is_gone_says_nothing_even_if_something_lies_below_it(point, is_empty):
    found = judge(replace(SEEN, device=1, inode=5, mount_point=point), is_empty=is_empty)
    assert found.state == "unmounted"
    assert "nothing is mounted at /mnt/models any more" in found.reason
    assert found.seen == SEEN, "or the next look would take it for the registry"
    assert not found.can_tell(Path("/mnt/models/registry/m"))


def test_a_mount_that_came_over_the_directory_is_the_registry():
    before = replace(SEEN, device=1, inode=5, mount_point="/")
    assert judge(SEEN, remembered=before).is_there


def test_another_device_at_the_same_place_is_the_registry_once_something_lies_in_it():
    again = replace(SEEN, device=8)
    assert judge(again, is_empty=True).state == "empty"
    assert judge(again).is_there


def test_a_link_that_leads_elsewhere_is_followed():
    assert judge(replace(SEEN, path="/other", mount_point="/"), is_empty=True).is_there


def test_a_disk_inside_that_is_gone_stays_remembered():
    found = judge(replace(SEEN, mounts_inside=frozenset()))
    assert found.is_there
    assert "nothing is mounted at /mnt/models/registry/a any more" in found.reason
    assert not found.can_tell(Path("/mnt/models/registry/a/m"))
    assert found.can_tell(Path("/mnt/models/registry/b"))
    again = judge(replace(SEEN, mounts_inside=frozenset()), remembered=found.seen)
    assert again == found


def test_a_real_directory(tmp_path):
    first = registry_is_there(tmp_path, None)
    assert first.is_there
    assert registry_is_there(tmp_path, first.seen) == first
    (tmp_path / "file").touch()
    gone = registry_is_there(tmp_path / "none", first.seen)
    assert (gone.state, gone.seen) == ("gone", first.seen)
    assert "is not there (No such file or directory)" in gone.reason
    assert registry_is_there(tmp_path / "file", None).state == "gone"


def test_what_is_remembered_survives_a_file():
    assert RootSeen.from_dict(SEEN.to_dict()) == SEEN


@pytest.mark.parametrize("value", [None, [], {}, {**SEEN.to_dict(), "inode": "1"}, {"path": "/"}])
def test_anything_else_is_not_what_was_remembered(value):
    assert RootSeen.from_dict(value) is None
