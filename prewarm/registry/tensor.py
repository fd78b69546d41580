"""A tensor's outside: name, dtype and shape, the same from whichever file it was read."""

from __future__ import annotations

from dataclasses import dataclass

#: Bytes of an element of each dtype that a pickled storage can have.
ITEM_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
    "complex32": 4, "complex64": 8, "complex128": 16,
    "quint8": 1, "qint8": 1, "qint32": 4, "quint4x2": 1, "quint2x4": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor by name; ``dtype`` is torch's name for it. Never its values."""

    name: str
    dtype: str
    shape: tuple[int, ...]
