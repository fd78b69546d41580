"""Unpacking of bundles that are right, cut, flipped, too large or in the way of something.

What is hostile in its very form is in test_hostile_bundles.py, what is spoilt under its own digest
in test_store_properties.py.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
import zstandard

from prewarm.errors import NoSpace, NotWritable, StoreCorrupt
from prewarm.store.bundle import BundleInfo, Limits, ListedFile, pack, unpack
from prewarm.store.bundle_format import END, Header, write_header

Unprivileged = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Packed:
    path: Path
    sha256: str
    size_bytes: int

    def unpack(self, into: Path, limits: Limits | None = None) -> tuple[ListedFile, ...]:
        return unpack(
            self.path, into, sha256=self.sha256, size_bytes=self.size_bytes, limits=limits
        )


Hostile = Callable[..., Packed]


@pytest.fixture
def hostile(tmp_path: Path) -> Hostile:
    """A bundle from raw bytes, with the digest that a manifest would give it."""

    def make(tar: bytes, *, after: bytes = b"", window_log: int = 20, raw: bool = False) -> Packed:
        parameters = zstandard.ZstdCompressionParameters(compression_level=3, window_log=window_log)
        compressor = zstandard.ZstdCompressor(compression_params=parameters)
        data = tar if raw else compressor.compress(tar) + after
        path = tmp_path / "hostile.tar.zst"
        path.write_bytes(data)
        return Packed(path, hashlib.sha256(data).hexdigest(), len(data))

    return make


def _file(name: str, data: bytes = b"x") -> bytes:
    header = Header(name, len(data), executable=False)
    return write_header(header) + data + bytes(header.padding_bytes)


def _tar(*names: str) -> bytes:
    return b"".join(map(_file, names)) + END


def _assert_refused(
    packed: Packed, tmp_path: Path, told: str, limits: Limits | None = None
) -> None:
    into = tmp_path / "around" / "into"
    with pytest.raises(StoreCorrupt, match=told) as caught:
        packed.unpack(into, limits)
    assert "\n" not in str(caught.value)
    assert str(packed.path) in str(caught.value)
    # Nothing beside it, nothing left in it.
    assert [path for path in (tmp_path / "around").rglob("*") if path != into] == []
    assert sorted(os.listdir(tmp_path)) in (["around", packed.path.name], [packed.path.name])


@pytest.fixture
def packed(tmp_path: Path) -> Packed:
    tree = tmp_path / "tree"
    for number in range(30):
        path = tree / "inductor" / f"{number % 7}" / f"c{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(hashlib.sha256(bytes([number])).digest() * (number * 500))
    info = pack(tree, tmp_path / "good.tar.zst")
    return Packed(tmp_path / "good.tar.zst", info.sha256, info.size_bytes)


def test_a_file_below_a_link_in_the_directory_is_not_written_through_it(
    hostile: Hostile, tmp_path: Path
) -> None:
    outside, into = tmp_path / "outside", tmp_path / "into"
    outside.mkdir()
    into.mkdir()
    (into / "inductor").symlink_to(outside)
    with pytest.raises(NotWritable):
        hostile(_tar("inductor/a")).unpack(into)
    assert os.listdir(outside) == []


def test_a_file_that_is_there_is_not_overwritten(hostile: Hostile, tmp_path: Path) -> None:
    into = tmp_path / "into"
    (into / "inductor").mkdir(parents=True)
    (into / "inductor" / "b").write_bytes(b"own")
    with pytest.raises(NotWritable, match="File exists"):
        hostile(_tar("inductor/a", "inductor/b")).unpack(into)
    assert (into / "inductor" / "b").read_bytes() == b"own"
    assert os.listdir(into / "inductor") == ["b"]


def test_every_cut_of_a_bundle_is_refused_before_unpacking(packed: Packed, tmp_path: Path) -> None:
    data = packed.path.read_bytes()
    for length in (0, 1, 100, len(data) // 2, len(data) - 1):
        packed.path.write_bytes(data[:length])
        with pytest.raises(StoreCorrupt, match=f"has {length:,} bytes, not {len(data):,}"):
            packed.unpack(tmp_path / "into")
    packed.path.write_bytes(data + b"x")
    with pytest.raises(StoreCorrupt, match="bytes, not"):
        packed.unpack(tmp_path / "into")
    assert not (tmp_path / "into").exists()


def test_every_flipped_bit_of_a_bundle_is_refused_before_unpacking(
    packed: Packed, tmp_path: Path
) -> None:
    data = packed.path.read_bytes()
    for place in range(0, len(data), max(1, len(data) // 50)):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        packed.path.write_bytes(damaged)
        with pytest.raises(StoreCorrupt, match="is damaged"):
            packed.unpack(tmp_path / "into")
    assert not (tmp_path / "into").exists()


def test_missing_bundle_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreCorrupt, match=r"cannot be read \(No such file or directory\)"):
        unpack(tmp_path / "none", tmp_path / "into", sha256="0" * 64, size_bytes=1)
    with pytest.raises(StoreCorrupt, match="Is a directory"):
        unpack(tmp_path, tmp_path / "into", sha256="0" * 64, size_bytes=1)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (Limits(files=2), "holds over 2 files|over the limit"),
        (Limits(unpacked_bytes=2_000), "over the limit of 2,000|over 2,000 bytes"),
        (Limits(packed_bytes=10), "over the limit of 10"),
        (Limits(window_bytes=1 << 16), "bytes of memory to unpack, over the limit of 65,536"),
    ],
)
def test_limits_are_kept(hostile: Hostile, tmp_path: Path, limits: Limits, told: str) -> None:
    tar = b"".join(_file(f"inductor/{n}", os.urandom(100_000)) for n in range(3)) + END
    _assert_refused(hostile(tar), tmp_path, told, limits)


def test_many_empty_files_are_over_the_limit_of_files(hostile: Hostile, tmp_path: Path) -> None:
    tar = b"".join(_file(f"inductor/{number}", b"") for number in range(50)) + END
    _assert_refused(hostile(tar), tmp_path, "holds over 49 files", Limits(files=49))
    assert len(hostile(tar).unpack(tmp_path / "into", Limits(files=50))) == 50


def test_a_bomb_is_refused_before_a_byte_is_unpacked(hostile: Hostile, tmp_path: Path) -> None:
    bomb = hostile(_file("inductor/zeros", bytes(50_000_000)) + END)
    assert bomb.size_bytes < 10_000
    _assert_refused(bomb, tmp_path, "unpacks to 50,0", Limits(files=1, unpacked_bytes=1_000_000))


_MEASURED = """
import sys
from pathlib import Path
from prewarm.store.bundle import unpack
unpack(Path(sys.argv[1]), Path(sys.argv[2]), sha256=sys.argv[3], size_bytes=int(sys.argv[4]))
[peak] = [line for line in Path("/proc/self/status").open() if line.startswith("VmHWM")]
print(peak.split()[1])
"""


def test_memory_stays_bounded_whatever_the_length(hostile: Hostile, tmp_path: Path) -> None:
    big = hostile(_file("inductor/zeros", bytes(300_000_000)) + END)
    told = subprocess.run(
        [sys.executable, "-c", _MEASURED, str(big.path), str(tmp_path / "into"), big.sha256,
         str(big.size_bytes)],
        capture_output=True,
        text=True,
        check=True,
    )  # fmt: skip
    assert int(told.stdout) < 60_000
    (tmp_path / "into" / "inductor" / "zeros").unlink()


def test_no_space_is_told_before_a_byte_is_unpacked(packed: Packed, tiny_disk: Path) -> None:
    with pytest.raises(NoSpace, match=r"bytes needed, [\d,]+ free"):
        packed.unpack(tiny_disk / "into")
    assert list((tiny_disk / "into").iterdir()) == []


def test_directory_that_cannot_be_written_is_told(
    packed: Packed, open_path: Path, unprivileged: Unprivileged, tmp_path: Path
) -> None:
    bundle = Packed(open_path / "b", packed.sha256, packed.size_bytes)
    bundle.path.write_bytes(packed.path.read_bytes())
    with unprivileged(), pytest.raises(NotWritable, match="Permission denied"):
        bundle.unpack(open_path / "into")


def test_modes_and_folders_do_not_depend_on_the_umask(packed: Packed, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        packed.unpack(tmp_path / "into")
    finally:
        os.umask(before)
    for path in (tmp_path / "into").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644)


def _pack(tree: Path, files: Iterable[tuple[str, bytes]]) -> tuple[Path, BundleInfo]:
    for name, data in files:
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    target = tree.with_suffix(".tar.zst")
    return target, pack(tree, target)


def test_a_second_bundle_joins_and_keeps_what_the_first_left(tmp_path: Path) -> None:
    one = _pack(tmp_path / "one", [("inductor/a/x", b"one"), ("inductor/a/same", b"one's")])
    two = _pack(tmp_path / "two", [("inductor/a/y", b"two"), ("inductor/a/same", b"two's!")])
    into = tmp_path / "into"
    listing: tuple[ListedFile, ...] = ()
    for path, info in (one, two):
        listing += unpack(
            path, into, sha256=info.sha256, size_bytes=info.size_bytes, earlier=listing
        )
    assert (into / "inductor/a/same").read_bytes() == b"one's"
    assert sorted(file.name for file in listing) == [
        "inductor/a/same",
        "inductor/a/x",
        "inductor/a/y",
    ]


def test_a_second_bundle_that_fails_takes_only_its_own_away(
    tmp_path: Path, hostile: Hostile
) -> None:
    path, info = _pack(tmp_path / "one", [("inductor/a/x", b"one")])
    into = tmp_path / "into"
    listing = unpack(path, into, sha256=info.sha256, size_bytes=info.size_bytes)
    bad = hostile(_tar("inductor/a/y", "inductor/A/z"))
    with pytest.raises(StoreCorrupt):
        unpack(bad.path, into, sha256=bad.sha256, size_bytes=bad.size_bytes, earlier=listing)
    clash = hostile(_tar("inductor/a/X"))
    with pytest.raises(StoreCorrupt, match="upper and lower case"):
        unpack(clash.path, into, sha256=clash.sha256, size_bytes=clash.size_bytes, earlier=listing)
    assert [file.as_posix() for file in into.rglob("*") if file.is_file()] == [
        str(into / "inductor/a/x")
    ]
