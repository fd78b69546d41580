"""What is wrong with a declaration, in plain words and one line.

Owns the translation of pydantic's errors: no message of pydantic is ever shown. Does not read
files.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from prewarm.registry.compile_table import CompileTable, Target
from prewarm.registry.declaration import DeclarationTables
from prewarm.registry.input_spec import InputSpec
from prewarm.registry.model_table import ModelTable, RegistryTable
from prewarm.registry.shape_set import ShapeSet
from prewarm.registry.toml_lines import Place, line_of
from prewarm.registry.toml_scalars import ISSUES

#: More issues than this are told as a number: one line must stay readable.
MAX_ISSUES = 12

#: What each table takes, by its place without list positions; `inputs` and `args` hold tensors.
_TABLES: dict[tuple[str, ...], type[BaseModel]] = {
    (): DeclarationTables,
    ("registry",): RegistryTable,
    ("model",): ModelTable,
    ("compile",): CompileTable,
    ("compile", "targets"): Target,
    ("shapes",): ShapeSet,
}

_DYNAMIC = 'dynamic = false (fixed sizes), true or "auto"'
_MISSING = {
    ("model",): "is missing; write [model] with a loader",
    ("compile",): f"is missing; write [compile] with {_DYNAMIC}",
    ("compile", "dynamic"): f"is not stated; write {_DYNAMIC}",
    ("shapes",): "is missing; write [[shapes]] with a name and inputs",
    ("model", "loader"): 'is not stated; write loader = "transformers", "torch", "python" …',
}

#: What people write for a key of [model] or an input, and what it is called here.
_OTHER_NAMES = {
    "cuda:0": "cuda", "gpu": "cuda", "fp32": "float32", "fp16": "float16", "half": "float16",
    "bf16": "bfloat16", "fp64": "float64", "float": "float32", "double": "float64",
    "int": "int64", "long": "int64", "inference_mode": "inference", "none": "",
}  # fmt: skip

_EXPECTED = {
    "string_type": "a string in quotes",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "union_tag_not_found": "a tensor { dtype = …, shape = […] }, or a table or list of tensors",
}


def issue_lines(
    error: ValidationError, *, file: str, lines: dict[Place, int], data: dict[str, Any]
) -> str:
    """Return all issues of a file as one line, in the order in which they stand there.

    ``data`` is what was validated: its shape sets are called by their names.
    """
    issues = [issue for found in error.errors() for issue in _issues(dict(found))]
    meant = {(*place[:-1], _meant(text)) for place, text in issues}
    # A misspelt key is told once, not again as the missing one that it was meant for.
    return join_issues(
        [(place, text) for place, text in issues if not (_is_missing(text) and place in meant)],
        file=file,
        lines=lines,
        shape_sets=_names_of_shape_sets(data),
    )


def join_issues(
    issues: Iterable[tuple[Place, str]],
    *,
    file: str,
    lines: dict[Place, int],
    shape_sets: Sequence[str] = (),
) -> str:
    """Return issues as ``file:line: [table] key what is wrong; …``."""
    found = sorted(
        {
            (line_of(lines, place) or 0, f"{_name_of(place, shape_sets)}{_colon(text)} {text}")
            for place, text in issues
        }
    )
    shown = [f"{file}:{line}: {text}" if line else f"{file}: {text}" for line, text in found]
    if len(shown) > MAX_ISSUES:
        shown[MAX_ISSUES:] = [f"and {len(shown) - MAX_ISSUES} more"]
    return "; ".join(shown)


def _colon(text: str) -> str:
    return ":" if text.startswith("unknown key") else ""


def _names_of_shape_sets(data: dict[str, Any]) -> list[str]:
    shapes = data.get("shapes")
    if not isinstance(shapes, list):
        return []
    names = [one.get("name") if isinstance(one, dict) else None for one in shapes]
    return [
        name if isinstance(name, str) and name else str(number)
        for number, name in enumerate(names, start=1)
    ]


def _name_of(place: Place, shape_sets: Sequence[str]) -> str:
    """Return a place as people write it: ``[[shapes]] chat inputs.x.shape[1]``."""
    if not place:
        return "the file"
    table, *rest = place
    if table == "shapes":
        name = "[[shapes]]"
        if rest and isinstance(rest[0], int):
            number = rest.pop(0)
            name += f" {shape_sets[number]}" if isinstance(number, int) and shape_sets else ""
    elif table in ("registry", "model", "compile"):
        name = f"[{table}]"
    else:
        return ".".join(str(part) for part in place)
    keys = ""
    for part in rest:
        keys += f"[{part}]" if isinstance(part, int) else f".{part}" if keys else str(part)
    return f"{name} {keys}".strip()


def _issues(found: dict[str, Any]) -> list[tuple[Place, str]]:
    place: Place = tuple(
        part for part in found["loc"] if isinstance(part, int) or not part.startswith("<")
    )
    if found["type"] == ISSUES:
        return [((*place, *below), text) for below, text in found["ctx"]["issues"]]
    return [(place, _text(place, found))]


def _text(place: Place, found: dict[str, Any]) -> str:
    kind, value = found["type"], found["input"]
    if kind == "missing":
        names = tuple(part for part in place if isinstance(part, str))
        return _MISSING.get(names, _missing(str(place[-1])))
    if kind == "extra_forbidden":
        return _unknown_key(place)
    if kind == "literal_error":
        return _not_one_of(value, found["ctx"]["expected"])
    if kind in _EXPECTED:
        return f"is {_shown(value)}, expected {_EXPECTED[kind]}"
    for bound, words in (("ge", "or more"), ("gt", ""), ("le", "or less"), ("lt", "")):
        if bound in found.get("ctx", {}):
            more = {"gt": "more than ", "lt": "less than "}.get(bound, "")
            return f"is {_shown(value)}, expected {more}{found['ctx'][bound]:g} {words}".rstrip()
    return f"is {_shown(value)}: " + " ".join(str(found["msg"]).split())


def _is_missing(text: str) -> bool:
    return text.startswith(("is not stated", "is missing"))


def _meant(text: str) -> str | None:
    """Return the key that the line about an unknown one suggests."""
    return text.rpartition("did you mean `")[2].rstrip("`?") if "did you mean `" in text else None


def _missing(key: str) -> str:
    example = {
        "name": 'name = "chat"',
        "dtype": 'dtype = "float32"',
        "shape": 'shape = ["batch", 8]',
        "at": 'at = "."',
    }.get(key)
    return f"is not stated; write {example}" if example else "is not stated"


def _not_one_of(value: object, expected: str) -> str:
    words = expected.replace(" or ", ", ").replace("'", "").split(", ")
    allowed = ", ".join(f'"{word}"' for word in words)
    if not isinstance(value, str):
        return f"is {_shown(value)}, expected one of {allowed}"
    bare = value.removeprefix("torch.").lower()
    near = _OTHER_NAMES.get(bare, bare)
    if near.startswith("cuda:"):
        near = "cuda"
    match = [near] if near in words else difflib.get_close_matches(near, words, n=1)
    if not match:
        return f'is "{value}", expected one of {allowed}'
    if value.startswith("cuda:"):
        return (
            f'is "{value}"; write "cuda" (the deployment picks the device with '
            "CUDA_VISIBLE_DEVICES, so that its index is 0)"
        )
    return f'is "{value}"; did you mean "{match[0]}"?'


def _unknown_key(place: Place) -> str:
    *table, key = place
    names = tuple(part for part in table if isinstance(part, str))
    if names not in _TABLES and names[:1] == ("shapes",):
        model: type[BaseModel] = InputSpec
    else:
        model = _TABLES.get(names, DeclarationTables)
    for other, other_model in _TABLES.items():
        if len(other) == 1 and key in keys_of(other_model):
            name = "[[shapes]]" if other == ("shapes",) else f"[{other[0]}]"
            return f"unknown key; it belongs to {name}"
    near = nearest_key(str(key), model)
    if near:
        return f"unknown key; did you mean `{near}`?"
    return "unknown key; known are " + ", ".join(sorted(keys_of(model)))


def nearest_key(key: str, model: type[BaseModel]) -> str | None:
    """Return the key of a table that is spelt most like ``key``, if any is near."""
    near = difflib.get_close_matches(key.lower(), keys_of(model), n=1, cutoff=0.6)
    return near[0] if near else None


def keys_of(model: type[BaseModel]) -> list[str]:
    """Return the keys of a table as they are written in TOML."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        text = f'"{value}"'
    else:
        text = "a table" if isinstance(value, dict) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
