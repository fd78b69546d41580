"""The graph in a ``.pt2`` file of ``torch.export.save``, without torch and without weight values.

Owns what of the archive shapes a graph: the serialized program without its notes (stack traces
hold paths and line numbers), and the sizes of everything else. Both layouts of torch are read:
since 2.8 ``models/*.json``, before ``serialized_exported_program.json``.
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from prewarm.errors import RegistryError
from prewarm.registry.checkpoint import CheckpointFile
from prewarm.registry.pickle_file import COMPRESSED, DAMAGED_ZIP

#: A program of 100,000 nodes is about this long.
MAX_PROGRAM_BYTES = 256 << 20

_DAMAGED: tuple[type[Exception], ...] = (*DAMAGED_ZIP, ValueError, EOFError, struct.error)

#: Notes on a node that no compiler reads as part of the graph.
_NOTES = {"stack_trace", "source_fn_stack", "nn_module_stack", "torch_fn", "from_node"}

#: Records that differ between two exports of the same program.
_IDLE = ("serialization_id", "sample_inputs")


@dataclass(frozen=True, slots=True)
class ExportedInput:
    """An input of the program as it was exported; None stands for a size that is free."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]


def exported_facts(file: CheckpointFile) -> dict[str, Any]:
    """Return the program and the sizes of the other records, without anything of place or time.

    Raises:
        RegistryError: the file cannot be read as an exported program.

    """
    programs: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    try:
        with zipfile.ZipFile(file.path) as archive:
            for info in archive.infolist():
                name = info.filename.partition("/")[2]
                if _is_program(name):
                    programs[name] = _program(archive, info, file)
                elif not any(idle in name for idle in _IDLE):
                    sizes[name] = info.file_size
    except _DAMAGED as error:
        raise RegistryError(
            f"{file.name}: cannot be read as an exported program; save it again with "
            "torch.export.save"
        ) from error
    except OSError as error:
        why = error.strerror or "its zip directory is damaged"
        raise RegistryError(f"{file.name}: cannot be read ({why})") from error
    if not programs:
        raise RegistryError(
            f"{file.name}: holds no exported program; save it with torch.export.save"
        )
    return {"programs": programs, "sizes": sizes}


def exported_inputs(file: CheckpointFile) -> tuple[ExportedInput, ...]:
    """Return the tensors that a program takes from its caller, as far as they can be told.

    Raises:
        RegistryError: as ``exported_facts``.

    """
    try:
        return _inputs(exported_facts(file)["programs"].values())
    except (AttributeError, LookupError, TypeError) as error:
        raise RegistryError(
            f"{file.name}: names its inputs in a form that is not known; write `args` by hand"
        ) from error


def _inputs(programs: Iterable[Any]) -> tuple[ExportedInput, ...]:
    for program in programs:
        module = program.get("graph_module", {})
        values = module.get("graph", {}).get("tensor_values", {})
        names = [
            spec["user_input"]["arg"]["as_tensor"]["name"]
            for spec in module.get("signature", {}).get("input_specs", [])
            if "as_tensor" in spec.get("user_input", {}).get("arg", {})
        ]
        if names:
            return tuple(_input(name, values.get(name, {})) for name in names)
    return ()


#: ``torch._export.serde.schema.ScalarType``.
_DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32",
    8: "float64", 10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16",
}  # fmt: skip


def _input(name: str, value: dict[str, Any]) -> ExportedInput:
    sizes = tuple(
        size["as_int"] if isinstance(size.get("as_int"), int) else None
        for size in value.get("sizes", [])
    )
    return ExportedInput(name, _DTYPES.get(value.get("dtype", 7), "float32"), sizes)


def _is_program(name: str) -> bool:
    return (name.startswith("models/") and name.endswith(".json")) or (
        name == "serialized_exported_program.json"
    )


def _program(archive: zipfile.ZipFile, info: zipfile.ZipInfo, file: CheckpointFile) -> Any:
    if info.file_size > MAX_PROGRAM_BYTES:
        raise RegistryError(f"{file.name}: its program is over {MAX_PROGRAM_BYTES:,} bytes")
    if info.compress_type not in COMPRESSED:
        raise RegistryError(f"{file.name}: is a zip of another kind than torch.export.save's")
    with archive.open(info) as stream:
        return _without_notes(json.loads(stream.read(MAX_PROGRAM_BYTES)))


def _without_notes(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_notes(below) for key, below in value.items() if key not in _NOTES}
    if isinstance(value, list):
        return [_without_notes(below) for below in value]
    return value
