"""The private tree: filled once, only looked at when right, put back when damaged."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

from prewarm.deploy import private
from prewarm.deploy.listing import NAME, changed_files, read_listing
from prewarm.deploy.private import BundleFile, prepare, tree_name
from prewarm.errors import NoSpace, NotWarm, NotWritable, StoreCorrupt
from prewarm.store.bundle import BundleInfo, bundle_path
from prewarm.store.leases import leases_directory

from .conftest import FILES, Publisher


def bundle(publish: Publisher, info: BundleInfo) -> BundleFile:
    return BundleFile(
        info.sha256, info.size_bytes, info.unpacked_bytes, info.files, publish.cache_dir
    )


@pytest.fixture
def one(publish: Publisher) -> BundleFile:
    return bundle(publish, publish.bundle(FILES))


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "D"


def test_a_tree_is_filled_then_only_looked_at(into: Path, one: BundleFile) -> None:
    first = prepare(into, [one])
    (into / private.LOCK).unlink()
    second = prepare(into, [one])

    assert first.filled
    assert not second.filled
    assert second.put_back == 0
    assert second.tree == first.tree == into / one.sha256[:32]
    assert {name: (first.tree / name).read_bytes() for name in FILES} == FILES
    assert (first.tree / "triton").is_dir(), "a cache that the bundle lacks is there to be written"
    assert (first.tree / "shim" / "sitecustomize.py").is_file()
    assert (first.tree / "shim" / "prewarm_torchside" / "shim.py").is_file()
    assert not (into / private.LOCK).exists(), "a look takes no lock"


def test_tritons_lists_name_files_of_the_tree_also_after_a_repair(
    into: Path, publish: Publisher
) -> None:
    group = "triton/HASH/__grp__k.json"
    listed = {group: b'{"child_paths": {"k.cubin": "/build/triton/HASH/k.cubin"}}'}
    one = bundle(publish, publish.bundle({**FILES, **listed, "triton/HASH/k.cubin": b"cubin"}))
    tree = prepare(into, [one]).tree
    right = json.loads((tree / group).read_text())
    assert right == {"child_paths": {"k.cubin": str(tree / "triton/HASH/k.cubin")}}
    assert prepare(into, [one]).put_back == 0
    (tree / group).unlink()
    assert prepare(into, [one]).put_back == 1
    assert json.loads((tree / group).read_text()) == right
    assert prepare(into, [one]).put_back == 0


def test_a_bundle_is_leased_while_it_is_unpacked_and_no_longer(
    into: Path, one: BundleFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = leases_directory(one.cache_dir)
    leases.mkdir()
    held: list[list[str]] = []

    def unpack(*_: object, **__: object) -> None:
        held.append([path.name[:64] for path in leases.iterdir()])
        raise StoreCorrupt("told by the test")

    monkeypatch.setattr("prewarm.store.bundle.unpack", unpack)
    with pytest.raises(NotWarm, match="told by the test"):
        prepare(into, [one])

    assert held == [[one.sha256]]
    assert list(leases.iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:100]),
        lambda path: path.write_bytes(bytes(path.stat().st_size)),
        lambda path: (path.unlink(), path.mkdir(), (path / "x").write_bytes(b"")),
        lambda path: (path.unlink(), path.symlink_to("/etc/hostname")),
    ],
    ids=["gone", "cut", "zeros", "a directory", "a link"],
)
def test_a_damaged_file_is_put_back_and_what_was_added_stays(
    into: Path, one: BundleFile, damage: object
) -> None:
    tree = prepare(into, [one]).tree
    added = tree / "inductor" / "aa" / "by_the_server"
    added.write_bytes(b"mine")
    assert callable(damage)
    damage(tree / "inductor" / "aa" / "kernel.so")

    repaired = prepare(into, [one])

    assert (repaired.filled, repaired.put_back) == (False, 1)
    assert {name: (tree / name).read_bytes() for name in FILES} == FILES
    assert added.read_bytes() == b"mine"
    assert prepare(into, [one]).put_back == 0
    assert not list(into.glob(".filling-*"))


def test_a_file_that_was_only_written_anew_is_not_put_back(into: Path, one: BundleFile) -> None:
    tree = prepare(into, [one]).tree
    os.utime(tree / "inductor/aa/one.py", ns=(1, 1))
    bundle_path(one.cache_dir, one.sha256).unlink()

    assert prepare(into, [one]).put_back == 0
    listing = read_listing(tree)
    assert listing is not None
    assert changed_files(tree, listing) == ()


def test_a_directory_that_became_a_link_is_not_written_through(
    into: Path, one: BundleFile, tmp_path: Path
) -> None:
    tree = prepare(into, [one]).tree
    elsewhere = tmp_path / "elsewhere"
    (tree / "inductor" / "aa").rename(elsewhere)
    (elsewhere / "kernel.so").write_bytes(b"theirs")
    (tree / "inductor" / "aa").symlink_to(elsewhere)

    prepare(into, [one])

    assert (tree / "inductor/aa/kernel.so").read_bytes() == FILES["inductor/aa/kernel.so"]
    assert (elsewhere / "kernel.so").read_bytes() == b"theirs"


@pytest.mark.parametrize("text", [None, b"", b"{", b'{"format": 9}', b'{"format": 1, "files": []}'])
def test_a_damaged_listing_is_made_anew(into: Path, one: BundleFile, text: bytes | None) -> None:
    tree = prepare(into, [one]).tree
    (tree / "inductor/aa/one.py").write_bytes(b"changed")
    if text is None:
        (tree / NAME).unlink()
    else:
        (tree / NAME).write_bytes(text)

    assert prepare(into, [one]).put_back == 1
    assert (tree / "inductor/aa/one.py").read_bytes() == FILES["inductor/aa/one.py"]


def test_a_newer_prewarm_brings_its_shim(
    into: Path, one: BundleFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = prepare(into, [one]).tree
    monkeypatch.setattr(private, "torchside_digest", lambda: "another")

    prepare(into, [one])

    listing = read_listing(tree)
    assert listing is not None
    assert listing.torchside == "another"


def test_several_bundles_are_merged_and_the_first_keeps_a_name(
    into: Path, publish: Publisher, one: BundleFile
) -> None:
    other = bundle(
        publish, publish.bundle({"inductor/aa/one.py": b"other", "triton/k/k.cubin": b"cubin"})
    )

    tree = prepare(into, [one, other]).tree

    assert tree.name == tree_name([other, one])
    assert (tree / "inductor/aa/one.py").read_bytes() == FILES["inductor/aa/one.py"]
    assert (tree / "triton/k/k.cubin").read_bytes() == b"cubin"
    assert prepare(into, [one, other]).put_back == 0
    assert prepare(into, [one, one]).tree != tree


def test_a_damaged_bundle_leaves_nothing(into: Path, one: BundleFile) -> None:
    packed = bundle_path(one.cache_dir, one.sha256)
    packed.write_bytes(packed.read_bytes()[:-1] + b"x")

    with pytest.raises(NotWarm, match=r"is damaged .*; the builder builds it again"):
        prepare(into, [one])

    assert [path.name for path in into.iterdir()] == [private.LOCK]


def test_what_a_killed_hook_left_is_removed(into: Path, one: BundleFile) -> None:
    (into / ".filling-dead" / "inductor").mkdir(parents=True)

    prepare(into, [one])

    assert not (into / ".filling-dead").exists()


def test_what_a_hook_left_that_was_killed_while_it_listed_is_removed(
    into: Path, one: BundleFile
) -> None:
    tree = prepare(into, [one]).tree
    (tree / NAME).rename(tree / ".prewarm-00.part")
    prepare(into, [one])
    assert not list(tree.glob(".prewarm-*"))


def test_modes_do_not_depend_on_the_umask(into: Path, one: BundleFile) -> None:
    before = os.umask(0o077)
    try:
        tree = prepare(into, [one]).tree
    finally:
        os.umask(before)

    for path in (into, tree, *tree.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644), path


def test_a_bundle_that_does_not_fit_is_told_before_it_is_unpacked(
    into: Path, one: BundleFile
) -> None:
    large = BundleFile(one.sha256, one.size_bytes, 1 << 60, one.files, one.cache_dir)

    with pytest.raises(NoSpace, match="1,152,921,504,606,8"):
        prepare(into, [large])


@pytest.mark.skipif(os.getuid() != 0, reason="root makes what another user cannot write")
def test_a_tree_that_the_user_cannot_write_is_told(one: BundleFile, open_directory: Path) -> None:
    into = open_directory / "D"
    prepare(into, [one])
    os.seteuid(65534)
    try:
        with pytest.raises(NotWritable, match="cannot be written as user 65534"):
            prepare(into, [one])
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_with_a_hard_umask_can_write_locks(
    publish: Publisher, one: BundleFile, open_directory: Path
) -> None:
    shutil.copytree(one.cache_dir, open_directory / "cache")
    mine = replace(one, cache_dir=open_directory / "cache")
    home = open_directory / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    before = os.umask(0o077)
    os.seteuid(65534)
    try:
        tree = prepare(home / "D", [mine]).tree
        (tree / "inductor" / "locks").mkdir()
        (tree / "inductor" / "locks" / "x.lock").touch()
        assert prepare(home / "D", [mine]).put_back == 0
    finally:
        os.seteuid(0)
        os.umask(before)

    assert tree.stat().st_uid == 65534
    assert (tree / "inductor/aa/one.py").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("name", ["triton", "inductor", "shim", "inductor/aa"])
@pytest.mark.parametrize("becomes", ["gone", "a file", "a link"])
def test_a_directory_that_is_gone_or_replaced_is_made_again(
    into: Path, one: BundleFile, name: str, becomes: str
) -> None:
    tree = prepare(into, [one]).tree
    shutil.rmtree(tree / name)
    if becomes == "a file":
        (tree / name).write_bytes(b"")
    elif becomes == "a link":
        (tree / name).symlink_to(into)

    prepare(into, [one])

    assert (tree / name).is_dir()
    assert {name: (tree / name).read_bytes() for name in FILES} == FILES
    assert (tree / "shim" / "sitecustomize.py").is_file()
    listing = read_listing(tree)
    assert listing is not None
    assert changed_files(tree, listing) == ()
    assert not (tree / name).is_symlink()


def test_a_file_that_nobody_may_read_any_more_is_put_back(into: Path, one: BundleFile) -> None:
    tree = prepare(into, [one]).tree
    (tree / "inductor/aa/one.py").chmod(0o200)

    assert prepare(into, [one]).put_back == 1
    assert (tree / "inductor/aa/one.py").stat().st_mode & 0o777 == 0o644
    assert prepare(into, [one]).put_back == 0


def test_a_full_disk_is_told_and_nothing_is_left(one: BundleFile, tiny_disk: Path) -> None:
    # It would fit if the manifest were right, so it is the writing that fails.
    small = replace(one, unpacked_bytes=1, files=1)
    (tiny_disk / "full").write_bytes(bytes(disk_free(tiny_disk) - 12_000))

    with pytest.raises(NoSpace, match=r"no space left|are needed and"):
        prepare(tiny_disk / "D", [small])

    assert [path.name for path in (tiny_disk / "D").iterdir()] == [private.LOCK]


def test_a_disk_that_is_too_small_is_told_before(one: BundleFile, tiny_disk: Path) -> None:
    (tiny_disk / "full").write_bytes(bytes(disk_free(tiny_disk) - 12_000))

    with pytest.raises(NoSpace, match=r"D: [\d,]+ bytes are needed and [\d,]+ are free; .* --into"):
        prepare(tiny_disk / "D", [one])


def disk_free(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def test_killed_at_any_line_the_next_hook_makes_it_right(tmp_path: Path, one: BundleFile) -> None:
    line, killed = 0, True
    while killed:
        line += 5
        into = tmp_path / str(line)
        child = os.fork()
        if child == 0:
            try:
                kill_before_line(line)
                prepare(into, [one])
            finally:
                os._exit(0)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        for tree in into.glob("[0-9a-f]*"):
            assert {name: (tree / name).read_bytes() for name in FILES} == FILES
        prepare(into, [one])
        assert not list(into.glob(".filling-*"))
    assert line > 20


def kill_before_line(line: int) -> None:
    seen = 0

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal seen
        if frame.f_code.co_filename != private.__file__:
            return None
        if event == "line":
            seen += 1
            if seen == line:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)  # type: ignore[arg-type]
