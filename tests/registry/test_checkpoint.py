from __future__ import annotations

import os

import pytest

from prewarm.registry.checkpoint import list_checkpoint


def listed(registry, name: str = "m", **options):
    return list_checkpoint(registry.root / name, name=name, root=registry.root, **options)


def test_files_are_listed_with_what_tells_a_change(registry):
    path = registry.bert("m") / "model.safetensors"
    checkpoint = listed(registry)
    assert [file.name for file in checkpoint.files] == ["config.json", "model.safetensors"]
    found, stat = checkpoint.file("model.safetensors"), path.stat()
    assert found is not None
    assert (found.size_bytes, found.mtime_ns, found.ctime_ns, found.inode) == (
        stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino,
    )  # fmt: skip
    assert checkpoint.size_bytes == sum(file.size_bytes for file in checkpoint.files)
    assert checkpoint.file("none") is None


def test_what_is_no_part_of_a_checkpoint_is_passed_over(registry):
    registry.bert("m")
    for name in (
        "prewarm.toml", ".hidden", ".git/config", "x.tmp", "y.incomplete", "z.part",
        "__pycache__/a.pyc", "blobs/b", ".cache/huggingface/download/x.metadata",
    ):  # fmt: skip
        registry.write(f"m/{name}", b"x")
    assert [file.name for file in listed(registry).files] == ["config.json", "model.safetensors"]


def test_excluded_files_are_left_out(registry):
    registry.bert("m")
    registry.write("m/optimizer.pt", b"x")
    checkpoint = listed(registry, excluded=lambda path: path == "m/optimizer.pt")
    assert checkpoint.file("optimizer.pt") is None


def test_links_inside_the_registry_are_followed(registry):
    registry.write("store/blob", b"weights")
    registry.write("store/sub/a.json", b"{}")
    registry.link("m/model.bin", "../store/blob")
    registry.link("m/sub", "../store/sub")
    checkpoint = listed(registry)
    assert [file.name for file in checkpoint.files] == ["model.bin", "sub/a.json"]
    assert checkpoint.files[0].path == registry.root / "store/blob"
    assert checkpoint.faults == ()


def test_links_out_of_the_registry_are_told(registry, tmp_path):
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "directory").mkdir()
    registry.link("m/model.bin", "../../secret")
    registry.link("m/sub", str(tmp_path / "directory"))
    checkpoint = listed(registry)
    assert checkpoint.files == ()
    assert checkpoint.faults[0] == (
        f"model.bin: links to {tmp_path}/secret, outside the registry; copy it in instead"
    )
    assert checkpoint.faults[1].startswith("sub: links to ")


def test_loops_of_links_end(registry):
    registry.bert("m")
    registry.link("m/again", ".")
    registry.link("m/up", "..")
    registry.link("m/self", "self")
    checkpoint = listed(registry)
    assert {file.name for file in checkpoint.files} >= {"config.json", "model.safetensors"}
    assert any(fault.startswith("self: ") for fault in checkpoint.faults)


def test_dangling_link_is_told(registry):
    registry.link("m/model.bin", "../gone")
    assert listed(registry).faults == (
        "model.bin: is gone, or links to nothing; copy the file again",
    )


def test_a_pipe_is_no_file(registry):
    registry.bert("m")
    os.mkfifo(registry.root / "m/pipe")
    assert len(listed(registry).files) == 2


def test_vanished_checkpoint_raises(registry):
    with pytest.raises(FileNotFoundError):
        listed(registry)


def test_a_single_file(registry):
    registry.write("m.pt2", b"x")
    (file,) = listed(registry, "m.pt2").files
    assert file.name == "m.pt2"
