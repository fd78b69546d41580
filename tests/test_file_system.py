from __future__ import annotations

from pathlib import Path

import pytest

from prewarm.file_system import file_system, is_network, network_file_system

_TABLE = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:40 / /mnt/share rw shared:1 - nfs4 filer:/export rw
31 27 0:41 / /mnt/with\\040space rw - cifs //host/share rw
32 30 0:42 / /mnt/share/local rw - tmpfs tmpfs rw
33 27 0:43 / /data rw - ext4 /dev/vdb rw
34 27 0:44 / /data rw - fuse.sshfs me@host:/data rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/mnt/share/a/b", "nfs4"),
        ("/mnt/shared", "ext4"),
        ("/mnt/with space/a", "cifs"),
        ("/mnt/share/local/a", "tmpfs"),
        ("/data/a", "fuse.sshfs"),
    ],
)
def test_file_system_is_that_of_the_innermost_last_mount(path: str, kind: str) -> None:
    assert file_system(Path(path), _TABLE)[0] == kind


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("nfs", "filer:/export"),
        ("nfs4", "filer:/export"),
        ("cifs", "//host/share"),
        ("smb3", "//host/share"),
        ("9p", "host"),
        ("ceph", "mon:/"),
        ("lustre", "a@tcp:/fs"),
        ("fuse.sshfs", "me@host:/data"),
        ("fuse.gcsfuse", "bucket"),
        ("fuse.glusterfs", "host:/volume"),
        ("fuse", "host:/volume"),
    ],
)
def test_network_file_systems_are_known(kind: str, source: str) -> None:
    assert is_network(kind, source)


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk", "fuse.fuse-overlayfs"]
)
def test_local_file_systems_are_known(kind: str) -> None:
    assert not is_network(kind, "/dev/sda1")


def test_the_temporary_directory_is_local(tmp_path: Path) -> None:
    assert network_file_system(tmp_path) is None


def test_empty_table_says_nothing() -> None:
    assert file_system(Path("/a"), "") == ("", "")
