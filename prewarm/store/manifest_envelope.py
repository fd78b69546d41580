"""A signed manifest as bytes: its signatures, and what they are over, without parsing that.

Pure. What is signed is canonical JSON and stands in the file as it was signed, so a reader can
check the signature first and parse only what a trusted key has signed: a stranger's endless lists
cost no memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_START = b'{"signatures":['
_BETWEEN = ',"signed":'
#: A signature takes about 150 bytes.
_SIGNATURES_BYTES = 16 << 10

_MANY_START, _MANY_END = b'{"manifests":[', b"]}"
#: Builders that share a cache_dir.
_MOST_MANIFESTS = 256


@dataclass(frozen=True, slots=True)
class Envelope:
    """Signatures of proper form, and the bytes that they may be over."""

    signatures: tuple[Mapping[str, str], ...]
    signed: memoryview


def open_envelope(data: bytes | memoryview) -> Envelope | None:
    """Return the envelope of one manifest; None where it is none."""
    view = memoryview(data)
    if bytes(view[-1:]) == b"\n":
        view = view[:-1]
    head = bytes(view[:_SIGNATURES_BYTES]).decode("utf-8", "replace")
    if not head.startswith(_START.decode()) or bytes(view[-1:]) != b"}":
        return None
    try:
        signatures, end = json.JSONDecoder().raw_decode(head, len(_START) - 1)
    except (ValueError, RecursionError):
        return None
    if not _are_signatures(signatures) or not head.startswith(_BETWEEN, end):
        return None
    # Signatures are ASCII, so characters are bytes up to here.
    return Envelope(tuple(signatures), view[end + len(_BETWEEN) : -1])


def split_manifests(data: bytes | bytearray) -> tuple[memoryview, ...] | None:
    """Return the manifests of ``{"manifests": [...]}``, each as its bytes; None where it is none.

    A text that only looks like the start of another manifest parts one into two that no signature
    is over.
    """
    view = memoryview(data)
    end = len(data) - data.endswith(b"\n")
    if not data.startswith(_MANY_START) or not data.endswith(_MANY_END, 0, end):
        return None
    start, stop = len(_MANY_START), end - len(_MANY_END)
    found: list[memoryview] = []
    while start < stop:
        comma = data.find(b"," + _START, start + 1, stop)
        found.append(view[start : stop if comma < 0 else comma])
        start = stop if comma < 0 else comma + 1
        if len(found) > _MOST_MANIFESTS:
            return None
    return tuple(found)


def _are_signatures(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, dict)
        and all(isinstance(one.get(name), str) and one[name].isascii() for name in ("keyid", "sig"))
        for one in value
    )
