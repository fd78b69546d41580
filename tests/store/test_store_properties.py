"""Properties of the store's parsers: round trips, and no damage ends in anything but a refusal."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from prewarm.errors import ManifestUnavailable, PrewarmError, StoreCorrupt
from prewarm.plain_text import is_plain
from prewarm.store.bundle import pack, unpack
from prewarm.store.bundle_format import END, Header, Names, read_header, read_pax_name, write_header
from prewarm.store.manifest import Manifest, read_manifest
from prewarm.store.manifest_envelope import split_manifests
from prewarm.store.manifest_signed import signed_manifest
from prewarm.store.manifest_text import canonical_json
from prewarm.store.signing import SigningKey, load_or_create_key

from ..properties import bounded, few, mutated
from ..tree import tree_of
from .bundle_bank import file, frame

_PART = st.text("ab.-_ ü模", min_size=1, max_size=8).filter(lambda part: part not in (".", ".."))
_NAME = st.builds(
    lambda top, parts: "/".join((top, *parts)),
    st.sampled_from(("inductor", "triton")),
    st.lists(_PART, min_size=1, max_size=4),
)
_TREES = st.dictionaries(_NAME, st.binary(max_size=2000), min_size=1, max_size=8)


@contextmanager
def _directory() -> Iterator[Path]:
    # One per example; a fixture's is one for all.
    path = Path(tempfile.mkdtemp(prefix="prewarm-test-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def _fits(tree: dict[str, bytes]) -> bool:
    names = Names()
    try:
        for name in tree:
            names.add(name)
    except StoreCorrupt:
        return False
    return True


@few
@given(_TREES.filter(_fits), st.booleans())
def test_what_was_packed_is_unpacked(tree: dict[str, bytes], executable: bool) -> None:
    with _directory() as root:
        for name, data in tree.items():
            path = root / "tree" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(0o755 if executable else 0o600)
        info = pack(root / "tree", root / "packed")
        listing = unpack(
            root / "packed", root / "into", sha256=info.sha256, size_bytes=info.size_bytes
        )
        found = {one.name: (root / "into" / one.name).read_bytes() for one in listing}
        assert found == tree
        assert info.unpacked_bytes == sum(map(len, tree.values()))
        mode = 0o755 if executable else 0o644
        assert {(root / "into" / name).stat().st_mode & 0o7777 for name in tree} == {mode}


_TAR = file("inductor/fxgraph/ab/graph", b"g" * 700) + file("triton/" + "ü" * 60, b"k") + END


def _unpacks_or_refuses(raw: bytes) -> None:
    with _directory() as root:
        (root / "bundle").write_bytes(raw)
        into = root / "into"
        before = tree_of(root, but=into)
        digest = hashlib.sha256(raw).hexdigest()
        try:
            listing = unpack(root / "bundle", into, sha256=digest, size_bytes=len(raw))
        except StoreCorrupt as error:
            assert is_plain(str(error))
            assert not into.exists() or list(into.iterdir()) == []
        else:
            files = {str(p.relative_to(into)) for p in into.rglob("*") if not p.is_dir()}
            assert files == {one.name for one in listing}
            for one in listing:
                content = (into / one.name).read_bytes()
                assert (one.size_bytes, one.sha256) == (
                    len(content), hashlib.sha256(content).hexdigest(),
                )  # fmt: skip
        assert tree_of(root, but=into) == before


@bounded
@given(mutated(_TAR))
def test_a_spoilt_tar_under_its_own_digest_is_refused_or_a_whole_listing(tar: bytes) -> None:
    _unpacks_or_refuses(frame(tar))


@bounded
@given(mutated(frame(_TAR)))
def test_a_spoilt_frame_under_its_own_digest_is_refused_or_a_whole_listing(raw: bytes) -> None:
    _unpacks_or_refuses(raw)


@bounded
@given(mutated(write_header(Header("inductor/a", 5, executable=True))), st.binary(max_size=64))
def test_a_spoilt_header_is_refused_or_says_something(block: bytes, record: bytes) -> None:
    for read in (lambda: read_header(block[:512].ljust(512, b"\0")), lambda: read_pax_name(record)):
        try:
            read()
        except StoreCorrupt as error:
            assert is_plain(str(error))


MANIFEST = Manifest(
    builder="gpu-1",
    version="1",
    environments={"e": {"device": "NVIDIA ‘H200’", "cxx": None}},
    entries=(),
    generated_at="2027-01-15T08:00:00.000Z",
    generation=7,
)


def _signed(key: SigningKey) -> bytes:
    signed = MANIFEST.to_dict()
    return canonical_json({"signatures": [key.sign(canonical_json(signed))], "signed": signed})


with _directory() as _state:
    KEY = load_or_create_key(_state)
GOOD = _signed(KEY)


@bounded
@given(mutated(GOOD))
def test_a_spoilt_manifest_is_refused_or_the_one_that_was_signed(raw: bytes) -> None:
    try:
        found = signed_manifest(raw, [KEY.public], where="there")
    except ManifestUnavailable as error:
        assert is_plain(str(error))
    else:
        assert found == MANIFEST


@bounded
@given(mutated(GOOD))
def test_a_spoilt_manifest_in_a_trusted_directory_is_read_or_refused(raw: bytes) -> None:
    with _directory() as root:
        path = root / "gpu-1.json"
        path.write_bytes(raw)
        try:
            found = read_manifest(path)
        except ManifestUnavailable as error:
            assert is_plain(str(error))
        else:
            assert Manifest.from_dict(found.manifest.to_dict()) == found.manifest
            assert found.signed_by([KEY.public]) in (None, KEY.keyid)


@bounded
@given(mutated(b'{"manifests":[' + GOOD + b"," + GOOD + b"]}\n"))
def test_a_spoilt_answer_of_several_manifests_is_parted_or_refused(raw: bytes) -> None:
    for part in split_manifests(raw) or ():
        try:
            assert signed_manifest(part, [KEY.public], where="there") == MANIFEST
        except PrewarmError as error:
            assert is_plain(str(error))
