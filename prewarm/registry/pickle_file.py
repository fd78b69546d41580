"""The tensors in a file that ``torch.save`` wrote (.pt, .pth, .bin): no torch, no values.

Owns the two containers: the zip of torch 1.6 and later, and the sequence of pickles before it. What
a pickle may hold is ``weights_unpickler``'s. A file that is anything else than weights is refused
by name, since only ``torch.load(weights_only=True)`` is safe in a deployment.
"""

from __future__ import annotations

import errno
import pickle
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from prewarm.errors import RegistryError
from prewarm.registry.tensor import ITEM_BYTES, Tensor
from prewarm.registry.weights_unpickler import (
    BoundedStream,
    ForbiddenGlobalError,
    Outside,
    Storage,
    load_structure,
)

#: What a file of torch before 1.6 starts with: ``torch.serialization.MAGIC_NUMBER`` and a version.
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001

#: Values that are looked at for tensors; more is no state_dict, whatever it refers to.
_MAX_VALUES = 2_000_000
_MAX_DEPTH = 60

#: What a malformed pickle can raise in the unpickler.
_MALFORMED = (
    pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError,
    OverflowError, RecursionError, struct.error, AssertionError, StopIteration, NameError,
)  # fmt: skip

#: What ``zipfile`` raises where bytes are damaged; RuntimeError for a file that would be encrypted.
DAMAGED_ZIP: tuple[type[Exception], ...] = (zipfile.BadZipFile, RuntimeError, zlib.error)

#: torch stores; whoever repacks may deflate. Other kinds raise errors of their own.
COMPRESSED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def read_tensors(path: Path, *, name: str | None = None) -> tuple[Tensor, ...]:
    """Return name, dtype and shape of each tensor, sorted by name.

    Raises:
        RegistryError: the file is damaged or cut, or holds more than weights.
        OSError: it cannot be opened or read.

    """
    name = name or path.name
    try:
        with path.open("rb") as stream:
            is_zip = stream.read(4) == b"PK\x03\x04"
            stream.seek(0)
            data = _from_zip(stream) if is_zip else _from_pickles(stream)
            return tuple(sorted(_tensors(data), key=lambda tensor: tensor.name))
    except ForbiddenGlobalError as error:
        named = "".join(part if part.isprintable() else "?" for part in str(error))[:120]
        raise RegistryError(
            f"{name}: holds {named}, so it is no weights-only file; "
            "save the weights alone: torch.save(model.state_dict(), …)"
        ) from error
    except _UnusableError as error:
        raise RegistryError(f"{name}: {error}") from error
    except _MALFORMED as error:
        raise RegistryError(
            f"{name}: cannot be read as a file of torch.save ({_first_words(error)}); "
            "copy it again, or save the state_dict anew"
        ) from error
    except DAMAGED_ZIP as error:
        raise RegistryError(f"{name}: its zip directory cannot be read; copy it again") from error
    except OSError as error:
        # A damaged zip sends its reader to a place before the file's beginning.
        if error.errno not in (None, errno.EINVAL):
            raise
        raise RegistryError(f"{name}: its zip directory cannot be read; copy it again") from error


class _UnusableError(Exception):
    """A file that is no torch file, or one that is not all there; the text says what to do."""


def _from_zip(stream: BinaryIO) -> Any:
    with zipfile.ZipFile(stream) as archive:
        records = {_inside(info.filename): info for info in archive.infolist()}
        if "data.pkl" not in records:
            raise _UnusableError("is a zip, but none of torch.save; save the state_dict anew")
        if "constants.pkl" in records:
            raise _UnusableError(
                "is a TorchScript archive, no weights-only file; "
                "save the weights alone: torch.save(model.state_dict(), …)"
            )
        storages: dict[str, Storage] = {}
        if records["data.pkl"].compress_type not in COMPRESSED:
            raise _UnusableError("is a zip of another kind than torch.save's; copy it again")
        with archive.open(records["data.pkl"]) as pickled:
            data = load_structure(BoundedStream(pickled), storages)  # type: ignore[arg-type]
        for storage in storages.values():
            record = records.get(f"data/{storage.key}")
            found = record.file_size if record else 0
            if found < _size_bytes(storage):
                raise _UnusableError(
                    f"{found:,} of {_size_bytes(storage):,} bytes of data/{storage.key} are there; "
                    "copy it again"
                )
        return data


def _inside(name: str) -> str:
    """Return a record's name without the archive's own name in front."""
    return name.partition("/")[2]


def _from_pickles(stream: BinaryIO) -> Any:
    bounded = BoundedStream(stream)
    storages: dict[str, Storage] = {}
    if load_structure(bounded, {}) != _MAGIC:
        raise _UnusableError("is a pickle, but none of torch.save; save the state_dict anew")
    if load_structure(bounded, {}) != _PROTOCOL:
        raise _UnusableError("was written by another version of torch.save; save it anew")
    load_structure(bounded, {})  # sizes of C types on the machine that wrote it
    data = load_structure(bounded, storages)
    keys = load_structure(bounded, {})
    if not isinstance(keys, list):
        raise _UnusableError("names no storages; save the state_dict anew")
    # After the pickles: for each storage its number of elements, then its bytes.
    expected = stream.tell() + sum(
        8 + _size_bytes(storages[str(key)]) for key in keys if str(key) in storages
    )
    size_bytes = stream.seek(0, 2)
    if size_bytes < expected:
        raise _UnusableError(f"{size_bytes:,} of {expected:,} bytes are there; copy it again")
    return data


def _size_bytes(storage: Storage) -> int:
    return storage.elements * ITEM_BYTES.get(storage.dtype, 1)


def _tensors(data: Any) -> Iterator[Tensor]:
    waiting: list[tuple[str, Any, int]] = [("", data, 0)]
    seen = 0
    while waiting:
        name, value, depth = waiting.pop()
        seen += 1
        if seen > _MAX_VALUES or depth > _MAX_DEPTH:
            raise _UnusableError("holds far more values than weights need; save the state_dict")
        if isinstance(value, Outside):
            yield Tensor(name, value.dtype, value.shape)
        elif isinstance(value, dict):
            waiting += [(_below(name, key), below, depth + 1) for key, below in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [(_below(name, key), below, depth + 1) for key, below in enumerate(value)]


def _below(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)


def _first_words(error: BaseException) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
