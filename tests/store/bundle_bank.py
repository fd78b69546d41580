"""A bank of hostile bundles: one builder per case, each with a word of how it is refused.

``CASES`` is used by test_hostile_bundles.py. Each builder returns the bytes of a file whose length
and digest a manifest states rightly: what is left to refuse it is the parser.
"""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass

import zstandard

from prewarm.store.bundle_format import END, Header, write_header

Build = Callable[[], bytes]


@dataclass(frozen=True)
class Case:
    build: Build
    told: str


def frame(tar: bytes, *, window_log: int = 20, **parameters: int) -> bytes:
    chosen = zstandard.ZstdCompressionParameters(
        compression_level=3, window_log=window_log, **parameters
    )
    return zstandard.ZstdCompressor(compression_params=chosen).compress(tar)


def file(name: str, data: bytes = b"x") -> bytes:
    header = Header(name, len(data), executable=False)
    return write_header(header) + data + bytes(header.padding_bytes)


def tar(*names: str) -> bytes:
    return b"".join(map(file, names)) + END


def member(name: str = "inductor/a", kind: bytes = tarfile.REGTYPE, **fields: object) -> bytes:
    """A header as tarfile writes it, whatever it says."""
    info = tarfile.TarInfo(name)
    info.type = kind
    for field, value in fields.items():
        setattr(info, field, value)
    return info.tobuf(tarfile.USTAR_FORMAT)


def patched(place: int, new: bytes, block: bytes | None = None) -> bytes:
    """A header with some bytes replaced and its checksum made right again."""
    made = bytearray(member(size=1) if block is None else block)
    made[place : place + len(new)] = new
    made[148:156] = b" " * 8
    made[148:156] = b"%06o\0 " % sum(made)
    return bytes(made)


def pax(record: bytes, *, size: int | None = None, kind: bytes = tarfile.XHDTYPE) -> bytes:
    """A pax header with a record of any bytes."""
    header = member("././@PaxHeader", kind, size=len(record) if size is None else size)
    return header + record + bytes(-len(record) % 512)


def record(key: bytes, value: bytes) -> bytes:
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest) + 1
    while len(str(length)) + len(rest) != length:
        length += 1
    return str(length).encode() + rest


def named(name: bytes) -> bytes:
    """A file whose name stands in a pax record."""
    return pax(record(b"path", name)) + file("inductor/other") + END


def declared(content_bytes: int, compressed: bytes) -> bytes:
    """A single-segment frame that declares another length than it has."""
    parameters = zstandard.get_frame_parameters(compressed)
    body = compressed[_header_bytes(compressed) :]
    assert not parameters.has_checksum
    return b"\x28\xb5\x2f\xfd" + b"\xe0" + content_bytes.to_bytes(8, "little") + body


def windowed(window_descriptor: int, content_bytes: int) -> bytes:
    """A frame whose header asks for a window, with one empty block."""
    start = b"\x28\xb5\x2f\xfd" + b"\xc0" + bytes([window_descriptor])
    return start + content_bytes.to_bytes(8, "little") + b"\x01\0\0"


def with_dictionary() -> bytes:
    samples = [b"inductor/%d/kernel_%d.so" % (n, n * 7) * 20 for n in range(300)]
    dictionary = zstandard.train_dictionary(1024, samples)
    return zstandard.ZstdCompressor(dict_data=dictionary).compress(tar("inductor/a"))


def zip_file() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("inductor/a", b"x")
    return made.getvalue()


def streamed(content: bytes) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(content) + stream.flush()


def _header_bytes(compressed: bytes) -> int:
    return zstandard.frame_header_size(compressed)


SKIPPABLE = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"note"
GOOD = tar("inductor/a")


def _names() -> dict[str, Case]:
    plain = {
        "dot dot": ("../outside", r"`\.\.`"),
        "dot dot inside": ("inductor/../../outside", r"`\.\.`"),
        "dot dot at the end": ("inductor/a/..", r"`\.\.`"),
        "dot": ("inductor/./a", "empty part"),
        "empty part": ("inductor//a", "empty part"),
        "absolute": ("/tmp/prewarm-outside", "is absolute"),
        "absolute twice": ("//tmp/prewarm-outside", "is absolute"),
        "foreign folder": ("shim/sitecustomize.py", "lies in neither"),
        "listing of the private directory": ("listing.json", "lies in neither"),
        "cache itself": ("inductor", "lies in neither"),
        "folder that only begins alike": ("inductor.d/a", "lies in neither"),
        "folder in another case": ("Inductor/a", "lies in neither"),
        "backslashes": ("inductor\\..\\..\\outside", "lies in neither"),
        "drive": ("C:\\inductor\\a", "lies in neither"),
        "long part": ("inductor/" + "n" * 256, "longer than"),
        "long name": ("inductor/" + "/".join(["n" * 200] * 6), "longer than|pax record of"),
        "newline": ("inductor/a\nb", "control character"),
        "escape sequence": ("inductor/a\x1b[31m", "control character"),
        "delete": ("inductor/a\x7fb", "control character"),
        "turned writing": ("inductor/a\u202egpj.so", "control character"),
    }
    cases = {
        name: Case(lambda text=text: frame(tar("inductor/good", text)), told)
        for name, (text, told) in plain.items()
    }
    raw = {
        "NUL in a name": (b"inductor/a\0b", "control character"),
        "name that is no UTF-8": (b"inductor/\xff\xfe", "no UTF-8"),
        "half surrogate": (b"inductor/\xed\xa0\x80", "no UTF-8"),
        "overlong slash": (b"inductor/..\xc0\xaf..\xc0\xafoutside", "no UTF-8"),
    }
    for name, (value, told) in raw.items():
        cases[name] = Case(lambda value=value: frame(named(value)), told)
    clashes = {
        "same name twice": "inductor/a",
        "other case": "inductor/A",
        "file below a file": "inductor/a/b",
    }
    for name, other in clashes.items():
        cases[name] = Case(lambda other=other: frame(tar("inductor/a", other)), "in a bundle")
    cases["folder in two cases"] = Case(
        lambda: frame(tar("inductor/d/a", "inductor/D/b")), "its folder differs only in"
    )
    return cases


def _kinds() -> dict[str, Case]:
    kinds = {
        "symbolic link": tarfile.SYMTYPE,
        "hard link": tarfile.LNKTYPE,
        "character device": tarfile.CHRTYPE,
        "block device": tarfile.BLKTYPE,
        "fifo": tarfile.FIFOTYPE,
        "directory": tarfile.DIRTYPE,
        "contiguous file": tarfile.CONTTYPE,
        "sparse file": tarfile.GNUTYPE_SPARSE,
        "GNU long name": tarfile.GNUTYPE_LONGNAME,
        "GNU long link": tarfile.GNUTYPE_LONGLINK,
        "global pax record": tarfile.XGLTYPE,
        "kind of old tars": tarfile.AREGTYPE,
        "socket (of star)": b"Z",
    }
    return {
        name: Case(
            lambda kind=kind: frame(
                file("inductor/good")
                + member("inductor/link", kind, linkname="/etc/passwd", devmajor=1, devminor=3)
                + END
            ),
            "regular files",
        )
        for name, kind in kinds.items()
    }


def _headers() -> dict[str, Case]:
    blocks: dict[str, tuple[Build, str]] = {
        "wrong checksum": (lambda: member()[:148] + b"000000\0 " + member()[156:] + END, "damaged"),
        "GNU header": (
            lambda: tarfile.TarInfo("inductor/a").tobuf(tarfile.GNU_FORMAT) + END,
            "foreign tar header",
        ),
        "size in base 256": (lambda: patched(124, b"\x80" + b"\xff" * 11) + END, "damaged tar"),
        "negative size": (lambda: patched(124, b"-0000000001\0") + END, "damaged tar"),
        "size with a plus": (lambda: patched(124, b"+0000000001\0") + END, "damaged tar"),
        "size with an underscore": (lambda: patched(124, b"0000_000001\0") + END, "damaged tar"),
        "size that is not octal": (lambda: patched(124, b"00000000009\0") + END, "damaged tar"),
        "empty size": (lambda: patched(124, b"\0" * 12) + END, "damaged tar"),
        "mode that is no number": (lambda: patched(100, b"rwxrwxrw") + END, "damaged tar"),
        "name field that is not ASCII": (
            lambda: patched(9, b"\xff\xfe") + END, "not as prewarm writes it",
        ),
        "prefix that climbs": (lambda: patched(345, b"../..") + END, r"`\.\.`"),
        "prefix that is absolute": (lambda: patched(345, b"/tmp") + END, "is absolute"),
        "8 GiB declared and 1 byte there": (
            lambda: member(size=8**11 - 1) + b"x" * 512 + END, "cut off",
        ),
        "no header at all": (lambda: bytes([1]) * 512 + END, "damaged or foreign"),
    }  # fmt: skip
    pax_records: dict[str, tuple[Build, str]] = {
        "pax path and size": (
            lambda: pax(record(b"path", b"inductor/a") + record(b"size", b"5")) + GOOD,
            "damaged pax record",
        ),
        "pax size alone": (lambda: pax(record(b"size", b"99999")) + GOOD, "no path"),
        "pax link": (lambda: pax(record(b"linkpath", b"/etc/passwd")) + GOOD, "no path"),
        "pax sparse map": (lambda: pax(record(b"GNU.sparse.name", b"a")) + GOOD, "no path"),
        "pax path that climbs": (lambda: named(b"inductor/../../outside"), r"`\.\.`"),
        "pax path that is absolute": (lambda: named(b"/etc/cron.d/prewarm"), "is absolute"),
        "pax path before a link": (
            lambda: pax(record(b"path", b"inductor/a")) + member("x", tarfile.SYMTYPE) + END,
            "regular files",
        ),
        "pax record twice": (
            lambda: pax(record(b"path", b"inductor/a")) * 2 + GOOD, "kind that no bundle holds",
        ),
        "pax length too short": (lambda: pax(b"9 path=inductor/a\n") + GOOD, "damaged pax"),
        "pax length too long": (lambda: pax(b"99 path=inductor/a\n") + GOOD, "damaged pax"),
        "pax length of many digits": (lambda: pax(b"9" * 600 + b" path=a\n") + GOOD, "damaged pax"),
        "pax without its end": (lambda: pax(b"17 path=inductor/a") + GOOD, "damaged pax"),
        "empty pax record": (lambda: pax(b"") + GOOD, "pax record"),
        "100 kB of pax": (lambda: pax(b"", size=100_000) + bytes(102_400) + END, "pax record of"),
        "8 GiB of pax": (lambda: pax(b"", size=8**11 - 1) + GOOD, "pax record of"),
        "pax at the end": (lambda: pax(record(b"path", b"inductor/a")), "cut off"),
        "pax before the end mark": (
            lambda: pax(record(b"path", b"inductor/a")) + END, "damaged or foreign",
        ),
    }  # fmt: skip
    return {
        name: Case(lambda build=build: frame(build()), told)
        for name, (build, told) in (blocks | pax_records).items()
    }


def _cuts() -> dict[str, Case]:
    tars: dict[str, tuple[bytes, str]] = {
        "nothing": (b"", "cut off|no bundle"),
        "one byte": (b"x", "cut off"),
        "half an end mark": (END[:512], "cut off"),
        "without its last byte": (GOOD[:-1], "cut off"),
        "without its last block": (GOOD[:-512], "cut off"),
        "cut in a header": (GOOD[:100], "cut off"),
        "cut in padding": (GOOD[:700], "cut off"),
        "cut in a file": (file("inductor/a", bytes(5000))[:3000], "cut off"),
        "a byte behind the end": (GOOD + b"x", "more follows"),
        "a block behind the end": (GOOD + bytes(512), "more follows"),
        "padded to a record": (GOOD + bytes(10240), "more follows"),
        "a file behind the end": (GOOD + file("inductor/b") + END, "more follows"),
        "end mark in the middle": (file("inductor/a") + bytes(512) + GOOD, "end mark is damaged"),
        "end mark first": (END + GOOD, "more follows"),
    }
    return {name: Case(lambda raw=raw: frame(raw), told) for name, (raw, told) in tars.items()}


def _frames() -> dict[str, Case]:
    builds: dict[str, tuple[Build, str]] = {
        "empty file": (lambda: b"", "is no bundle"),
        "text": (lambda: b"no zstd", "is no bundle"),
        "zeros": (lambda: bytes(1000), "is no bundle"),
        "magic alone": (lambda: b"\x28\xb5\x2f\xfd", "is no bundle"),
        "header alone": (lambda: frame(GOOD)[:9], "nothing of it was kept|is no bundle"),
        "uncompressed tar": (lambda: GOOD, "is no bundle"),
        "gzip": (lambda: gzip.compress(GOOD), "is no bundle"),
        "xz": (lambda: lzma.compress(GOOD), "is no bundle"),
        "zip": (zip_file, "is no bundle"),
        "frame in a frame": (lambda: frame(frame(GOOD)), "cut off|damaged"),
        "cut frame": (lambda: frame(GOOD)[:-8], "nothing of it was kept"),
        "garbage behind": (lambda: frame(GOOD) + b"trailing garbage", "nothing of it was kept"),
        "a zero byte behind": (lambda: frame(GOOD) + b"\0", "nothing of it was kept"),
        "second frame": (lambda: frame(GOOD) + frame(b"more"), "nothing of it was kept"),
        "second bundle": (lambda: frame(GOOD) * 2, "nothing of it was kept"),
        "tar in two frames": (lambda: frame(GOOD[:600]) + frame(GOOD[600:]), "longer than it says"),
        "skippable frame first": (lambda: SKIPPABLE + frame(GOOD), "is no bundle|cut off"),
        "length not stated": (lambda: streamed(GOOD), "unpacked length is not stated"),
        "less declared than there is": (
            lambda: declared(512, frame(GOOD)), "nothing of it was kept",
        ),
        "more declared than there is": (
            lambda: declared(1 << 20, frame(GOOD)), "nothing of it was kept",
        ),
        "a terabyte declared": (lambda: declared(1 << 40, frame(GOOD)), "over the limit"),
        "all bits of a length": (lambda: declared((1 << 64) - 3, frame(GOOD)), "over the limit"),
        "window of 2 GiB": (lambda: windowed(0xA8, 1 << 20), "bytes of memory to unpack"),
        "window of terabytes": (
            lambda: windowed(0xFF, 1 << 20), "bytes of memory to unpack|is no bundle",
        ),
        "dictionary that nobody has": (with_dictionary, "nothing of it was kept"),
        "wrong checksum of the frame": (
            lambda: zstandard.ZstdCompressor(write_checksum=True).compress(GOOD)[:-4] + b"evil",
            "nothing of it was kept",
        ),
    }  # fmt: skip
    return {name: Case(build, told) for name, (build, told) in builds.items()}


CASES: dict[str, Case] = {**_names(), **_kinds(), **_headers(), **_cuts(), **_frames()}
