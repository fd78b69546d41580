"""The header of a safetensors file: which tensors it holds, and whether it covers the file exactly.

Owns the format's rules (https://github.com/huggingface/safetensors, "Format"), read without the
library and without a byte of the weights. What is wrong is a value, since a file may still be being
written.
"""

from __future__ import annotations

import io
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from prewarm.registry.tensor import Tensor

#: Headers take about 100 bytes for each tensor; the largest real ones are below 1 MB.
MAX_HEADER_BYTES = 32 << 20

#: Bits of an element of each dtype.
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64, "C128": 128, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip

#: The names that torch uses, so that the same tensor reads the same from any kind of file.
_TORCH_NAMES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "I16": "int16", "U16": "uint16", "F16": "float16",
    "BF16": "bfloat16", "I32": "int32", "U32": "uint32", "F32": "float32", "I64": "int64",
    "U64": "uint64", "F64": "float64", "C64": "complex64", "C128": "complex128",
}  # fmt: skip

#: The page of a file whose absence at the end tells that space was set aside and never written.
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Header:
    """What a header says, or in ``fault`` what is wrong: one line without the file's name."""

    tensors: tuple[Tensor, ...]
    fault: str | None


def read_header(path: Path) -> Header:
    """Read the header of a file and judge whether it covers the file exactly.

    Raises:
        OSError: the file cannot be opened or read.

    """
    with path.open("rb") as stream:
        size_bytes = os.fstat(stream.fileno()).st_size
        first = stream.read(8)
        fault = _fault_of_start(first, size_bytes)
        if fault:
            return Header((), fault)
        length = int.from_bytes(first, "little")
        text = stream.read(length)
        header = _judge(text, size_bytes)
        if header.fault is None and _end_is_hole(stream, size_bytes, 8 + length):
            return Header((), "its end was never written (preallocated); copy it again")
        return header


def _fault_of_start(first: bytes, size_bytes: int) -> str | None:
    if size_bytes == 0:
        return "is empty; copy it again"
    if len(first) < 8:
        return f"ends after {size_bytes} bytes, within its header; copy it again"
    if first == bytes(8):
        return "starts with zeros, so it was preallocated and never written; copy it again"
    if first == b"version ":
        return "is a Git LFS pointer, not the weights; run `git lfs pull`"
    length = int.from_bytes(first, "little")
    if length > MAX_HEADER_BYTES:
        return f"is no safetensors file: its header would take {length:,} bytes; replace it"
    if 8 + length > size_bytes:
        return (
            f"{size_bytes:,} bytes are there, its header alone takes {8 + length:,}; copy it again"
        )
    return None


def _judge(text: bytes, size_bytes: int) -> Header:
    if not text.strip(b"\0"):
        return Header((), "its header is all zeros, so it was preallocated; copy it again")
    try:
        data = json.load(io.BytesIO(text))
        tensors, end = _tensors(data)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        what = str(error) if isinstance(error, _NotSafetensorsError) else "no table of tensors"
        return Header((), f"its header cannot be read ({what}); copy it again")
    expected = 8 + len(text) + end
    if expected > size_bytes:
        return Header((), f"{size_bytes:,} of {expected:,} bytes are there; copy it again")
    if expected < size_bytes:
        return Header(
            (), f"{size_bytes:,} bytes are there, but its header covers {expected:,}; copy it again"
        )
    return Header(tensors, None)


class _NotSafetensorsError(ValueError):
    """A header that is JSON but breaks the format's rules."""


def _tensors(data: Any) -> tuple[tuple[Tensor, ...], int]:
    if not isinstance(data, dict):
        raise _NotSafetensorsError("it is no table")
    spans: list[tuple[int, int, str]] = []
    tensors: list[Tensor] = []
    for name, entry in data.items():
        if name == "__metadata__":
            continue
        if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= set(entry):
            raise _NotSafetensorsError(f"{name} has no dtype, shape and data_offsets")
        shape = tuple(_count(size, name) for size in entry["shape"])
        begin, end = (_count(offset, name) for offset in entry["data_offsets"])
        dtype = entry["dtype"]
        if dtype not in _BITS:
            raise _NotSafetensorsError(f"{name} has the unknown dtype {dtype!r}")
        if (end - begin) * 8 != math.prod(shape) * _BITS[dtype]:
            raise _NotSafetensorsError(f"the offsets of {name} do not fit its shape")
        spans.append((begin, end, name))
        tensors.append(Tensor(name, _TORCH_NAMES.get(dtype, dtype.lower()), shape))
    return tuple(tensors), _covered(spans)


def _count(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _NotSafetensorsError(f"{name} has {value!r} where a count belongs")
    return value


def _covered(spans: list[tuple[int, int, str]]) -> int:
    at = 0
    for begin, end, name in sorted(spans):
        if begin != at:
            raise _NotSafetensorsError(f"there is a gap or an overlap before {name}")
        at = end
    return at


def _end_is_hole(stream: BinaryIO, size_bytes: int, data_start: int) -> bool:
    """Say whether the last page was set aside but never written, where the file system can tell."""
    last_page = (size_bytes - 1) // _PAGE_BYTES * _PAGE_BYTES
    if last_page < data_start or not hasattr(os, "SEEK_HOLE"):
        return False
    try:
        return os.lseek(stream.fileno(), last_page, os.SEEK_HOLE) == last_page
    except OSError:  # this file system cannot tell
        return False
