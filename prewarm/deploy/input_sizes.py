"""Which declared shape set a graph's inputs are, and of which sizes.

Pure. Holds the inputs that a start report names against the ``shapes`` of the declaration that a
proof records; where names or shapes do not fit, nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A shape set with the sizes that a graph's inputs bind; ``is_declared`` if those are there."""

    shape_set: str
    sizes: dict[str, int]
    is_declared: bool


def call_of(inputs: Sequence[Table], shapes: Sequence[Table]) -> Call | None:
    """Return the call that made these inputs, a declared one before one of other sizes."""
    found = [
        Call(str(shape_set.get("name")), sizes, _is_declared(sizes, shape_set))
        for shape_set in shapes
        if (sizes := _bound(inputs, shape_set)) is not None
    ]
    return max(found, key=lambda call: call.is_declared, default=None)


def declared_sizes(name: str, shapes: Sequence[Table]) -> str:
    """Return the sizes of a shape set as people write them."""
    rows = [_rows(one.get("sizes")) for one in shapes if one.get("name") == name]
    return "; ".join(sizes_text(row) for row in rows[0]) if rows else ""


def sizes_text(sizes: Mapping[str, Any]) -> str:
    """Say sizes as they stand in a declaration."""
    return ", ".join(f"{name} = {size}" for name, size in sorted(sizes.items())) or "none"


def toml_lines(call: Call) -> str:
    """Return what makes a call a declared one."""
    row = ", ".join(f"{name} = {size}" for name, size in call.sizes.items())
    return f'in [[shapes]] "{call.shape_set}" add {{ {row} }} to sizes'


def _bound(inputs: Sequence[Table], shape_set: Table) -> dict[str, int] | None:
    """Return the sizes under which a shape set has these inputs, or None if it cannot have them."""
    specs = dict(_specs(shape_set))
    places = [_spec_of(given, specs) for given in inputs]
    left = [spec for name, spec in specs.items() if name not in {place for place, _ in places}]
    sizes: dict[str, int] = {}
    for given, (_, named) in zip(inputs, places, strict=True):
        spec = named if named is not None else left.pop(0) if left else None
        if spec is None or not _binds(given, spec, sizes):
            return None
    return sizes if inputs else None


def _spec_of(given: Table, specs: Mapping[str, Table]) -> tuple[str, Table | None]:
    name = str(given.get("name"))
    return name, specs.get(name)


def _specs(shape_set: Table) -> Iterator[tuple[str, Table]]:
    """Yield the declared tensors, keyword arguments under the name that the frame knows them by."""
    for number, spec in enumerate(shape_set.get("args") or ()):
        yield from _tensors(f"args.{number}", spec)
    for name, spec in (shape_set.get("inputs") or {}).items():
        yield from _tensors(str(name), spec)


def _tensors(name: str, spec: object) -> Iterator[tuple[str, Table]]:
    if isinstance(spec, Mapping) and isinstance(spec.get("dtype"), str) and "shape" in spec:
        yield name, spec
    elif isinstance(spec, Mapping):
        for key, below in spec.items():
            yield from _tensors(f"{name}.{key}", below)
    elif isinstance(spec, list | tuple):
        for number, below in enumerate(spec):
            yield from _tensors(f"{name}.{number}", below)


def _binds(given: Table, spec: Table, sizes: dict[str, int]) -> bool:
    found = given.get("sizes") or given.get("shape") or ()
    expected = spec.get("shape") or ()
    if len(found) != len(expected):
        return False
    return all(
        sizes.setdefault(name, size) == size if isinstance(name, str) else name == size
        for name, size in zip(expected, found, strict=True)
    )


def _is_declared(sizes: Mapping[str, int], shape_set: Table) -> bool:
    return any(sizes.items() <= row.items() for row in _rows(shape_set.get("sizes")))


def _rows(sizes: object) -> list[dict[str, Any]]:
    """Return the rows of a list of tables, or of a grid."""
    if isinstance(sizes, Mapping):
        rows: list[dict[str, Any]] = [{}]
        for name, values in sizes.items():
            each = values if isinstance(values, list | tuple) else [values]
            rows = [{**row, str(name): value} for row in rows for value in each]
        return rows
    return [dict(row) for row in sizes] if isinstance(sizes, list | tuple) else [{}]
