"""The own cgroup is found in both versions, also where a container sees only a part."""

from __future__ import annotations

from pathlib import Path

from prewarm.build.own_cgroup import VERSION_2, OwnCgroup, own_cgroup

UNIFIED = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
LEGACY = (
    "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "36 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


def test_version_2_is_one_directory_below_its_mount() -> None:
    found = own_cgroup(VERSION_2, own="0::/system.slice/prewarm.service\n", mount_table=UNIFIED)
    assert found is not None
    assert list(found.upwards()) == [
        Path("/sys/fs/cgroup/system.slice/prewarm.service"),
        Path("/sys/fs/cgroup/system.slice"),
        Path("/sys/fs/cgroup"),
    ]


def test_version_1_is_found_by_its_controller() -> None:
    own = "3:memory:/m\n2:cpu,cpuacct:/docker/abc\n0::/\n"
    assert own_cgroup("cpu", own=own, mount_table=UNIFIED + LEGACY) == OwnCgroup(
        Path("/sys/fs/cgroup/cpu,cpuacct/docker/abc"), Path("/sys/fs/cgroup/cpu,cpuacct")
    )


def test_a_mounted_part_of_the_hierarchy_is_the_top_of_what_is_seen() -> None:
    table = "36 31 0:32 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    top = Path("/sys/fs/cgroup")
    for own, directory in (("0::/docker/abc\n", top), ("0::/docker/abc/in\n", top / "in")):
        assert own_cgroup(VERSION_2, own=own, mount_table=table) == OwnCgroup(directory, top)


def test_what_is_not_mounted_or_not_there_is_none() -> None:
    assert own_cgroup(VERSION_2, own="0::/a\n", mount_table=LEGACY) is None
    assert own_cgroup("cpu", own="0::/a\n", mount_table=LEGACY) is None
    assert own_cgroup(VERSION_2, own="2:cpu:/a\n", mount_table=UNIFIED) is None
