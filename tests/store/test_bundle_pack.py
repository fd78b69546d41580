from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import tarfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import zstandard

from prewarm.errors import NoSpace, NotWritable, StoreCorrupt
from prewarm.store import bundle_pack
from prewarm.store.bundle import BundleInfo, pack, pack_apart, unpack

Unprivileged = Callable[[], AbstractContextManager[None]]

_FILES = {
    "inductor/fxgraph/ab/fabc/def": b"graph" * 1000,
    "inductor/aa/caa.py": b"import torch\n",
    "inductor/aa/caa.so": os.urandom(3_000_000),
    "inductor/ab/empty": b"",
    "triton/0/ABC/k.cubin": b"\x7fELF" + bytes(5000),
    "triton/0/ABC/" + "long" * 50 + ".json": b"{}",
    "triton/0/ABC/ünï.json": b"{}",
    "triton/0/ABC/exactly.bin": bytes(1024),
}


def make_tree(root: Path, names: list[str] | None = None) -> Path:
    for name in names or list(_FILES):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_FILES[name])
    (root / "inductor/aa/caa.so").chmod(0o755)
    return root


def test_a_tree_comes_back_as_it_was(tmp_path: Path) -> None:
    tree, bundle, into = make_tree(tmp_path / "tree"), tmp_path / "b", tmp_path / "into"
    info = pack(tree, bundle)
    assert info == BundleInfo(
        sha256=hashlib.sha256(bundle.read_bytes()).hexdigest(),
        size_bytes=bundle.stat().st_size,
        unpacked_bytes=sum(map(len, _FILES.values())),
        files=len(_FILES),
    )
    listing = unpack(bundle, into, sha256=info.sha256, size_bytes=info.size_bytes)
    found = {
        path.relative_to(into).as_posix(): path.read_bytes()
        for path in into.rglob("*")
        if path.is_file()
    }
    assert found == _FILES
    assert {file.name: (file.size_bytes, file.sha256) for file in listing} == {
        name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in _FILES.items()
    }
    modes = {file.name: (into / file.name).stat().st_mode & 0o777 for file in listing}
    assert {name for name, mode in modes.items() if mode == 0o755} == {"inductor/aa/caa.so"}
    assert set(modes.values()) == {0o644, 0o755}


def test_equal_trees_give_equal_bytes(tmp_path: Path) -> None:
    one = pack(make_tree(tmp_path / "one"), tmp_path / "one.tar.zst")
    before = os.umask(0o077)
    try:
        other_tree = make_tree(tmp_path / "other", list(reversed(_FILES)))
    finally:
        os.umask(before)
    for path in other_tree.rglob("*"):
        os.utime(path, (1, 1))
        if os.geteuid() == 0:
            os.chown(path, 12345, 54321)
    (other_tree / "inductor" / "empty-folder").mkdir()
    other = pack(other_tree, tmp_path / "other.tar.zst")
    assert one == other
    assert (tmp_path / "one.tar.zst").read_bytes() == (tmp_path / "other.tar.zst").read_bytes()
    (other_tree / "inductor/aa/caa.py").write_bytes(b"import Torch\n")
    assert pack(other_tree, tmp_path / "other.tar.zst").sha256 != one.sha256


def test_locks_and_temporary_files_are_left_out(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    for name in (
        "inductor/locks/a",
        "inductor/aa/a.lock",
        "inductor/aa/.1.2.tmp",
        "inductor/__pycache__/a.pyc",
        "triton/0/ABC/tmp.pid_12_ab/k.ptx",
        "other/a",
        "top",
    ):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(b"x")
    assert pack(tree, tmp_path / "b").files == len(_FILES)


def test_skip_leaves_out_more(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    info = pack(tree, tmp_path / "b", skip=lambda name: name.startswith("triton/"))
    assert info.files == sum(name.startswith("inductor/") for name in _FILES)


def test_links_and_sockets_are_left_out_and_named(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    (tmp_path / "secret").write_bytes(b"secret")
    (tree / "inductor" / "link").symlink_to(tmp_path / "secret")
    (tree / "inductor" / "folder-link").symlink_to(tmp_path)
    os.mkfifo(tree / "triton" / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(tree / "triton")
        listening.bind("socket")
        os.chdir(here)
        info = pack(tree, tmp_path / "b")
    assert info.files == len(_FILES)
    assert info.skipped == (
        "inductor/folder-link",
        "inductor/link",
        "triton/pipe",
        "triton/socket",
    )


def test_linked_top_folder_is_not_followed(tmp_path: Path) -> None:
    real = make_tree(tmp_path / "real")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "inductor").symlink_to(real / "inductor")
    with pytest.raises(StoreCorrupt, match="holds no compile cache"):
        pack(tree, tmp_path / "b")


@pytest.mark.parametrize("make", [lambda tree: None, lambda tree: (tree / "inductor").mkdir()])
def test_nothing_to_pack_is_told(tmp_path: Path, make: Callable[[Path], None]) -> None:
    (tmp_path / "tree").mkdir()
    make(tmp_path / "tree")
    with pytest.raises(StoreCorrupt, match="holds no compile cache to pack"):
        pack(tmp_path / "tree", tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_names_that_no_reader_takes_are_refused_at_once(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    (tree / "inductor" / "a\nb").write_bytes(b"")
    with pytest.raises(StoreCorrupt, match="control character"):
        pack(tree, tmp_path / "b")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("data", [b"longer" * 100_000, b"short", None])
def test_a_file_that_changes_while_it_is_packed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes | None
) -> None:
    tree = make_tree(tmp_path / "tree")
    path = tree / "inductor/fxgraph/ab/fabc/def"
    check = bundle_pack._check

    def change_after_the_look(*arguments: object) -> None:
        check(*arguments)  # type: ignore[arg-type]
        path.unlink()
        if data is not None:
            path.write_bytes(data)

    monkeypatch.setattr(bundle_pack, "_check", change_after_the_look)
    with pytest.raises(StoreCorrupt, match="changed or became unreadable"):
        pack(tree, tmp_path / "b")
    assert sorted(os.listdir(tmp_path)) == ["tree"]


def test_a_file_that_cannot_be_read_is_refused(open_path: Path, unprivileged: Unprivileged) -> None:
    tree = make_tree(open_path / "tree")
    (tree / "inductor/aa/caa.py").chmod(0)
    open_path.chmod(0o777)
    with unprivileged(), pytest.raises(StoreCorrupt, match="Permission denied"):
        pack(tree, open_path / "b")


def test_full_disk_is_told_and_nothing_is_left(tmp_path: Path, tiny_disk: Path) -> None:
    with pytest.raises(NoSpace, match=str(tiny_disk / "b")):
        pack(make_tree(tmp_path / "tree"), tiny_disk / "b")
    assert os.listdir(tiny_disk) == []


def test_standard_tools_open_a_bundle(tmp_path: Path) -> None:
    bundle = tmp_path / "b.tar.zst"
    pack(make_tree(tmp_path / "tree"), bundle)
    tar = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompress(bundle.read_bytes())
    (tmp_path / "b.tar").write_bytes(tar)
    with tarfile.open(tmp_path / "b.tar") as opened:
        assert sorted(opened.getnames()) == sorted(_FILES)
    if shutil.which("tar"):
        told = subprocess.run(
            ["tar", "-tf", str(tmp_path / "b.tar")], capture_output=True, check=True
        )
        assert len(told.stdout.splitlines()) == len(_FILES)
        assert told.stderr == b""


def test_packing_in_a_child_gives_the_same(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    (tree / "inductor" / "link").symlink_to("nowhere")
    here = pack(tree, tmp_path / "here")
    assert pack_apart(tree, tmp_path / "apart") == here
    assert here.skipped == ("inductor/link",)
    assert (tmp_path / "apart").read_bytes() == (tmp_path / "here").read_bytes()


def test_a_child_hands_on_its_errors(tmp_path: Path) -> None:
    with pytest.raises(StoreCorrupt, match="holds no compile cache"):
        pack_apart(tmp_path, tmp_path / "b")
    with pytest.raises(NotWritable, match="No such file"):
        pack_apart(make_tree(tmp_path / "tree"), tmp_path / "none" / "b")
