from __future__ import annotations

import errno

import pytest

from prewarm.registry import watch_method
from prewarm.registry.watch_method import choose_method, count_directories, enough, refused


@pytest.fixture
def sysctl(tmp_path, monkeypatch):
    """Return the writer of a kernel's limit; none is set at first."""
    root = tmp_path / "sys"
    monkeypatch.setattr(watch_method, "_SYSCTL", root)

    def write(name: str, value: int) -> None:
        path = root / name.replace(".", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")

    return write


def test_a_local_directory_is_watched_by_inotify(registry):
    registry.write("a/b/file")
    registry.link("c", "a")
    method = choose_method(registry.root)
    assert (method.kind, method.directories, method.next_step) == ("inotify", 3, None)


def test_a_network_file_system_is_polled(registry, monkeypatch):
    monkeypatch.setattr(watch_method, "network_file_system", lambda path: "nfs4")
    method = choose_method(registry.root)
    assert (method.kind, method.next_step) == ("polling", None)
    assert method.why == "nfs4 does not tell what other machines write"


def test_a_network_file_system_inside_the_registry_is_polled_too(registry, monkeypatch):
    inside = f"{registry.root}/share"
    table = f"1 0 0:1 / {inside} rw - cifs //host/share rw\n"
    monkeypatch.setattr(watch_method, "read_mount_table", lambda: table)
    monkeypatch.setattr(
        watch_method, "network_file_system", lambda path: "cifs" if str(path) == inside else None
    )
    assert choose_method(registry.root).why.startswith("cifs does not tell")


def test_too_many_directories_are_polled_with_what_to_raise(registry, sysctl):
    for number in range(4):
        (registry.root / f"{number}").mkdir()
    sysctl("fs.inotify.max_user_watches", 5)
    assert choose_method(registry.root).kind == "inotify"
    sysctl("user.max_inotify_watches", 4)
    method = choose_method(registry.root)
    assert method.kind == "polling"
    assert "user.max_inotify_watches = 4; 5 directories need one each" in method.why
    assert method.next_step == "raise it: sysctl user.max_inotify_watches=65536"


def test_a_refused_instance_is_polled(sysctl):
    sysctl("fs.inotify.max_user_instances", 128)
    method = refused(errno.EMFILE)
    assert method.kind == "polling"
    assert "fs.inotify.max_user_instances = 128" in method.why
    assert refused(errno.ENOSYS).why == "inotify is refused here (Function not implemented)"


def test_a_kernel_without_limits_has_none(registry, sysctl):
    assert choose_method(registry.root).limit is None


def test_directories_are_counted_without_links(registry):
    registry.write("a/b/c/file")
    registry.link("a/loop", "..")
    assert count_directories(registry.root) == 4


@pytest.mark.parametrize(
    ("directories", "limit", "told"),
    [(1, None, 65536), (40_000, 8192, 131072), (10, 65536, 262144)],
)
def test_a_limit_is_advised_that_leaves_room(directories, limit, told):
    assert enough(directories, limit) == told
