"""An unpickler that builds the outside of tensors and can do nothing else.

Owns the list of what a weights-only file may name (as in ``torch.load(weights_only=True)``) and an
inert stand-in for each. Nothing that a pickle names is ever imported or called. Rules:

- Python's unpickler in Python, not in C: its memo is a dict, so that a forged index costs nothing.
- State (BUILD) is dropped; opcodes that allocate by a forged length or make instances are refused.
- Reading is counted by ``BoundedStream``: a forged length ends the read, not the memory.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar

#: Bytes of pickle that are read at most: at 150 for each tensor, these are 400,000 tensors.
MAX_PICKLE_BYTES = 64 << 20


class ForbiddenGlobalError(Exception):
    """A pickle names something that no weights-only file holds."""


@dataclass(frozen=True, slots=True)
class Storage:
    """The bytes behind tensors: where they lie and how many elements they hold."""

    dtype: str
    key: str
    elements: int


@dataclass(frozen=True, slots=True)
class Outside:
    """A tensor without its name and values."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """A global that stands for nothing but its name: a dtype, a type, a layout, a scheme."""

    name: str

    def __call__(self, *_: object) -> Named:
        """Return the stand-in of an instance: the name again."""
        return self


class BoundedStream:
    """What an unpickler reads from: a file that ends after ``limit_bytes``."""

    def __init__(self, stream: BinaryIO, limit_bytes: int = MAX_PICKLE_BYTES) -> None:
        self._stream = stream
        self._left = limit_bytes

    def read(self, size: int = -1) -> bytes:
        """Read ``size`` bytes; more than the limit is refused before any is read."""
        if size < 0 or size > self._left:
            raise pickle.UnpicklingError("the pickle is larger than any of weights")
        found = self._stream.read(size)
        self._left -= len(found)
        return found

    def readline(self) -> bytes:
        """Read one line, within the limit."""
        line = self._stream.readline(self._left + 1)
        if len(line) > self._left:
            raise pickle.UnpicklingError("the pickle is larger than any of weights")
        self._left -= len(line)
        return line


def load_structure(stream: BoundedStream, storages: dict[str, Storage]) -> Any:
    """Load one pickle as plain values and ``Outside`` tensors; note each storage it names.

    Raises:
        ForbiddenGlobalError: it names something else than weights.

    """
    return _Unpickler(stream, storages).load()


def _tensor(storage: Storage, _offset: int, size: Any, *_: object) -> Outside:
    return Outside(storage.dtype, _shape(size))


def _tensor_v3(
    _storage: Storage, _offset: int, size: Any, _stride: Any, _grad: Any, _hooks: Any, dtype: Named,
    *_: object,
) -> Outside:  # fmt: skip
    return Outside(dtype.name, _shape(size))


def _meta_tensor(dtype: Named, size: Any, *_: object) -> Outside:
    return Outside(dtype.name, _shape(size))


def _device_tensor(data: Any, dtype: Named, *_: object) -> Outside:
    return Outside(dtype.name, data.shape if isinstance(data, Outside) else ())


def _wrapper_subclass(_kind: Any, dtype: Named, size: Any, *_: object) -> Outside:
    return Outside(dtype.name, _shape(size))


def _sparse_tensor(_layout: Any, data: Any) -> Outside:
    values = next(part for part in reversed(data) if isinstance(part, Outside))
    size = next(part for part in reversed(data) if isinstance(part, tuple))
    return Outside(f"sparse {values.dtype}", _shape(size))


def _nested_tensor(buffer: Outside, *_: object) -> Outside:
    return Outside(f"nested {buffer.dtype}", buffer.shape)


def _same(data: Any, *_: object) -> Any:
    return data


def _from_type(function: Any, _kind: Any, arguments: Any, *_: object) -> Any:
    if function not in _FUNCTIONS.values():
        raise pickle.UnpicklingError("a tensor is rebuilt by something that is no rebuild function")
    return function(*arguments)


def _size(entries: Any = ()) -> tuple[int, ...]:
    return _shape(entries)


def _nothing(*_: object) -> None:
    return None


def _shape(size: Any) -> tuple[int, ...]:
    shape = tuple(size)
    if not all(isinstance(entry, int) and entry >= 0 for entry in shape):
        raise pickle.UnpicklingError("a tensor's shape holds something else than sizes")
    return shape


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": OrderedDict,
    "collections.Counter": _nothing,
    "builtins.set": _nothing,
    "builtins.bytearray": _nothing,
    "builtins.complex": _nothing,
    "_codecs.encode": _nothing,
    "torch.Size": _size,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_qtensor": _tensor,
    "torch._utils._rebuild_parameter": _same,
    "torch._utils._rebuild_parameter_with_state": _same,
    "torch._utils._rebuild_meta_tensor_no_storage": _meta_tensor,
    "torch._utils._rebuild_device_tensor_from_numpy": _device_tensor,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _device_tensor,
    "torch._utils._rebuild_wrapper_subclass": _wrapper_subclass,
    "torch._utils._rebuild_sparse_tensor": _sparse_tensor,
    "torch._utils._rebuild_nested_tensor": _nested_tensor,
}

_STORAGES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16",
    "Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8",
    "Bool": "bool", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
    "QUInt8": "quint8", "QInt8": "qint8", "QInt32": "qint32", "QUInt4x2": "quint4x2",
    "QUInt2x4": "quint2x4", "Untyped": "uint8", "Typed": "uint8",
}  # fmt: skip

_NAMES = {
    "bool", "bfloat16", "float16", "float32", "float64", "complex32", "complex64", "complex128",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    "float4_e2m1fn_x2", "qint8", "qint32", "quint8", "quint4x2", "quint2x4",
    "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2", "device", "Tensor",
    "per_tensor_affine", "per_channel_affine", "per_tensor_symmetric", "per_channel_symmetric",
    "per_channel_affine_float_qparams", "strided", "sparse_coo",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64)),
}  # fmt: skip

_TYPES = {
    "torch.nn.parameter.Parameter",
    "torch.nn.parameter.Buffer",
    "torch.serialization._get_layout",
}


def _refused(unpickler: Any) -> None:
    raise pickle.UnpicklingError("it uses an opcode that no file of weights needs")


def _drop_state(unpickler: Any) -> None:
    unpickler.stack.pop()


class _Unpickler(pickle._Unpickler):
    dispatch: ClassVar[dict[int, Callable[..., None]]] = {
        **pickle._Unpickler.dispatch,
        **{
            opcode[0]: _refused
            for opcode in (
                pickle.INST, pickle.OBJ, pickle.NEWOBJ, pickle.NEWOBJ_EX, pickle.EXT1, pickle.EXT2,
                pickle.EXT4, pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER,
            )
        },
        pickle.BUILD[0]: _drop_state,
    }  # fmt: skip

    def __init__(self, stream: BoundedStream, storages: dict[str, Storage]) -> None:
        super().__init__(stream, encoding="utf-8")
        self._storages = storages

    def find_class(self, module: str, name: str) -> Any:
        """Return the inert stand-in of a global."""
        module = {"__builtin__": "builtins"}.get(module, module)
        whole = f"{module}.{name}"
        if whole in _FUNCTIONS:
            return _FUNCTIONS[whole]
        if module in ("torch", "torch.cuda", "torch.storage") and name.endswith("Storage"):
            kind = name.removesuffix("Storage")
            if kind in _STORAGES:
                return Named(_STORAGES[kind])
        if module == "torch" and name in _NAMES:
            return Named(name)
        if whole in _TYPES or (module.startswith("torch") and _is_tensor_type(name)):
            return Named(whole)
        raise ForbiddenGlobalError(whole)

    def persistent_load(self, pid: Any) -> Storage:
        """Return the storage that a tensor names; its bytes stay where they are."""
        kind, storage_type, key, _location, elements, *_ = pid
        if kind != "storage" or not isinstance(storage_type, Named):
            raise pickle.UnpicklingError("it holds a reference to something else than a storage")
        if not isinstance(elements, int) or elements < 0:
            raise pickle.UnpicklingError("a storage has no size")
        storage = Storage(storage_type.name, str(key), elements)
        self._storages.setdefault(storage.key, storage)
        return storage


def _is_tensor_type(name: str) -> bool:
    return name.endswith("Tensor") and name.removesuffix("Tensor") in _STORAGES
