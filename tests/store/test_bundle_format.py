from __future__ import annotations

import tarfile
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prewarm.errors import StoreCorrupt
from prewarm.store.bundle_format import (
    BLOCK_BYTES,
    Header,
    Names,
    bundle_path,
    pax_size,
    read_header,
    read_pax_name,
    write_header,
)

from ..properties import bounded

_PART = st.text(
    st.characters(min_codepoint=33, exclude_characters="/\x7f", exclude_categories=["Cs", "Cc"]),
    min_size=1,
    max_size=60,
).filter(lambda part: part not in (".", ".."))


def _read(blocks: bytes) -> Header:
    size_bytes = pax_size(blocks[:BLOCK_BYTES])
    if size_bytes is None:
        assert len(blocks) == BLOCK_BYTES
        return read_header(blocks)
    name = read_pax_name(blocks[BLOCK_BYTES : BLOCK_BYTES + size_bytes])
    return read_header(blocks[-BLOCK_BYTES:], name)


@bounded
@given(
    st.lists(_PART, min_size=1, max_size=4),
    st.integers(min_value=0, max_value=8**11 - 1),
    st.booleans(),
)
def test_a_header_is_read_as_it_was_written(
    parts: list[str], size_bytes: int, executable: bool
) -> None:
    header = Header("/".join(("inductor", *parts)), size_bytes, executable)
    blocks = write_header(header)
    assert len(blocks) % BLOCK_BYTES == 0
    assert _read(blocks) == header


@bounded
@given(st.binary(min_size=BLOCK_BYTES, max_size=BLOCK_BYTES))
def test_any_other_block_is_refused(block: bytes) -> None:
    with pytest.raises(StoreCorrupt):
        read_header(block)


@bounded
@given(st.integers(min_value=0, max_value=BLOCK_BYTES * 8 - 1))
def test_a_flipped_bit_in_a_header_is_refused_or_changes_nothing(bit: int) -> None:
    header = Header("inductor/aa/b.py", 1234, executable=False)
    block = bytearray(write_header(header))
    block[bit // 8] ^= 1 << bit % 8
    with suppress(StoreCorrupt):
        assert read_header(bytes(block)) == header


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (tarfile.LNKTYPE, "a hard link"),
        (tarfile.SYMTYPE, "a link"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.DIRTYPE, "a folder"),
        (tarfile.FIFOTYPE, "a pipe"),
        (b"S", "of a kind that no bundle holds"),
    ],
)
def test_anything_but_a_regular_file_is_refused_by_its_kind(kind: bytes, told: str) -> None:
    info = tarfile.TarInfo("inductor/a")
    info.type = kind
    with pytest.raises(StoreCorrupt, match=rf"'inductor/a/?' in a bundle: is {told};"):
        read_header(info.tobuf(tarfile.USTAR_FORMAT))


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"x",
        b"20 path=inductor/a\n",
        b"19 path=inductor/a",
        b"19 size=0000000000\n",
        b"19 path=inductor/\xff\n",
        b"12 path=a/b\n12 path=a/c\n",
    ],
)
def test_a_damaged_pax_record_is_refused(record: bytes) -> None:
    with pytest.raises(StoreCorrupt):
        name = read_pax_name(record)
        # Two records in one read as one name with a line break, which no name may hold.
        Names().add(name)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("/etc/passwd", "is absolute"),
        ("inductor/../../etc/passwd", "`..`"),
        ("inductor/./a", "`.`"),
        ("inductor//a", "empty part"),
        ("inductor/a/", "empty part"),
        ("", "empty part"),
        ("..", "`..`"),
        ("inductor", "lies in neither"),
        ("Inductor/a", "lies in neither"),
        ("shim/a", "lies in neither of inductor, triton"),
        ("inductor/a\0b", "control character"),
        ("inductor/a\nb", "control character"),
        ("inductor/a\x7fb", "control character"),
        ("inductor/\udcff", "no UTF-8"),
        ("inductor/" + "a" * 256, "longer than"),
        ("inductor/" + "ü" * 128, "longer than"),
        ("inductor" + "/abcdefg" * 128, "longer than"),
    ],
)
def test_bad_names_are_refused(name: str, told: str) -> None:
    with pytest.raises(StoreCorrupt, match=told) as caught:
        Names().add(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("inductor/a", "inductor/a"),
        ("inductor/a", "inductor/A"),
        ("inductor/a/b", "inductor/A/c"),
        ("inductor/a/b", "inductor/a"),
        ("inductor/a", "inductor/a/b"),
        ("inductor/a", "inductor/A/b"),
        ("inductor/straße", "inductor/STRASSE"),
    ],
)
def test_clashing_names_are_refused(one: str, other: str) -> None:
    names = Names()
    names.add(one)
    with pytest.raises(StoreCorrupt):
        names.add(other)


def test_names_of_real_caches_pass() -> None:
    names = Names()
    for name in (
        "inductor/fxgraph/ab/fabc/def",
        "inductor/fxgraph/ab/fabc/xyz",
        "inductor/2a/c2ayx.cubin.so",
        "triton/0/ABC234/triton_poi_fused__to_copy_0.cubin",
        "triton/0/ABC234/__grp__triton_poi_fused__to_copy_0.json",
        "inductor/a b/c.best_config",
    ):
        names.add(name)


def test_bundle_path_is_that_of_the_contract(tmp_path: object) -> None:
    from pathlib import Path

    digest = "ab" + "0" * 62
    assert bundle_path(Path("/c"), digest) == Path(f"/c/bundles/sha256/ab/{digest}.tar.zst")
