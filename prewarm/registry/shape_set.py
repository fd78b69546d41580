"""A ``[[shapes]]`` table: a named, ordered list of calls that a deployment will make.

Owns the expansion of ``sizes`` and the rule that every name is bound and every size used. Does not
make tensors.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from prewarm.registry.input_spec import InputSpec, InputTree, tensors, to_plain
from prewarm.registry.toml_scalars import (
    Issue,
    PlainTable,
    Strings,
    Table,
    as_tuple,
    matching,
    refuse,
)

#: Calls of one shape set. Each static size is a graph of its own: more than this is a slip.
MAX_CALLS = 512

_REFERENCE = re.compile(r"\$([A-Za-z_]\w*)")

Sizes = tuple[dict[str, int], ...]


def _expanded(value: object) -> object:
    """Return the declared ``sizes`` as one table per call, in call order."""
    if isinstance(value, tuple):
        return value
    if isinstance(value, Mapping):
        return _grid(value)
    if isinstance(value, list):
        return _listed(value)
    refuse([((), f"is {value!r}, expected a grid {{ batch = [1, 8] }} or a list of tables")])
    return value


def _grid(table: Mapping[str, object]) -> Sizes:
    # One number may stand for a list of one.
    axes = {name: axis if isinstance(axis, list) else [axis] for name, axis in table.items()}
    issues: list[Issue] = [((name,), "is [], expected sizes") for name in axes if not axes[name]]
    issues += [
        ((name,), f"holds {size!r}, expected whole numbers of 0 or more")
        for name, axis in axes.items()
        for size in axis
        if not _is_size(size)
    ]
    refuse(issues)
    calls = 1
    for axis in axes.values():
        calls *= len(axis)
    _refuse_too_many(calls)
    return tuple(dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values()))


def _listed(tables: list[object]) -> Sizes:
    if not tables:
        refuse([((), "is [], expected at least one table, e.g. [{ batch = 1 }]")])
    _refuse_too_many(len(tables))
    issues: list[Issue] = []
    names: list[str] | None = None
    for index, table in enumerate(tables):
        if not isinstance(table, Mapping):
            issues.append(((index,), f"is {table!r}, expected a table, e.g. {{ batch = 1 }}"))
            continue
        issues += [
            ((index, name), f"is {size!r}, expected a whole number of 0 or more")
            for name, size in table.items()
            if not _is_size(size)
        ]
        if names is None:
            names = sorted(table)
        elif sorted(table) != names:
            issues.append(
                (
                    (index,),
                    f"binds {_listing(sorted(table))}, but the first binds {_listing(names)}",
                )
            )
    refuse(issues)
    return tuple(dict(table) for table in tables if isinstance(table, Mapping))


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _refuse_too_many(calls: int) -> None:
    if calls > MAX_CALLS:
        refuse([((), f"makes {calls:,} calls, at most {MAX_CALLS} are possible; declare fewer")])


def _listing(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


class ShapeSet(Table):
    """``[[shapes]]``: what is called, with which inputs, for which sizes, in which order."""

    name: Annotated[str, matching(r"\w[\w.-]*", "letters, digits, `.`, `_` and `-`")]
    call: Annotated[str, matching(r"\.|\w+(\.\w+)*", '"." or a method such as "encode"')] = "."
    inputs: dict[str, InputTree] = Field(default_factory=dict)
    args: list[InputTree] = Field(default_factory=list)
    kwargs: PlainTable = Field(default_factory=dict)
    steps: int = Field(default=0, ge=0)
    dynamic_dims: Strings = ()
    sizes: Annotated[tuple[dict[str, int], ...], BeforeValidator(_expanded)] = ()
    requests: Annotated[tuple[PlainTable, ...], as_tuple()] = ()

    @model_validator(mode="after")
    def _names_are_bound_and_used(self) -> ShapeSet:
        bound = set(self.sizes[0]) if self.sizes else set()
        used = set(self.dynamic_dims)
        issues: list[Issue] = []
        for where, name, spelt in self._references():
            used.add(name)
            if name not in bound:
                issues.append((where, f"{spelt} is bound by no `sizes`; {_remedy(name, bound)}"))
        issues += [
            (("dynamic_dims",), f'"{name}" is bound by no `sizes`; {_remedy(name, bound)}')
            for name in self.dynamic_dims
            if name not in bound
        ]
        issues += [
            (("sizes",), f'"{name}" is used by no input, args or kwargs; remove or respell it')
            for name in sorted(bound - used)
        ]
        for index, call in enumerate(self.sizes):
            if call in self.sizes[:index]:
                text = ", ".join(f"{name} = {size}" for name, size in call.items())
                issues.append((("sizes",), f"{{ {text} }} stands twice; remove one"))
        for key in self.kwargs:
            if key in self.inputs:
                issues.append((("kwargs", key), "is stated in `inputs` too; keep one of them"))
        refuse(issues)
        return self

    def _references(self) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
        for where, spec in tensors(self.inputs, ("inputs",)):
            for name in spec.names():
                yield (*where, "shape"), name, f'"{name}"'
        for where, spec in tensors(self.args, ("args",)):
            for name in spec.names():
                yield (*where, "shape"), name, f'"{name}"'
        for where, name in _dollar_names(self.kwargs, ("kwargs",)):
            yield where, name, f'"${name}"'

    def takes_something(self) -> bool:
        """Say whether a call has any argument."""
        return bool(self.inputs or self.args or self.kwargs)

    def calls(self) -> Sizes:
        """Return the sizes of each call in order; one call without sizes when none are declared."""
        return tuple(dict(sizes) for sizes in self.sizes) or ({},)

    def to_dict(self) -> dict[str, Any]:
        """Return the plain form that a child reads."""
        return {
            "name": self.name,
            "call": self.call,
            **self.arguments(),
            "steps": self.steps,
            "dynamic_dims": list(self.dynamic_dims),
            "sizes": list(self.calls()),
        }

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a call in their declared order, as plain values."""
        return {
            "inputs": to_plain(self.inputs),
            "args": to_plain(self.args),
            "kwargs": self.kwargs,
        }

    def key_facts(self) -> dict[str, Any]:
        """Return what of this shape set reaches the graph: no names, every size in its place."""
        return {
            "call": self.call,
            "steps": self.steps,
            "calls": [self._call_facts(sizes) for sizes in self.calls()],
        }

    def _call_facts(self, sizes: dict[str, int]) -> dict[str, Any]:
        def placed(entry: int | str) -> Any:
            if not isinstance(entry, str):
                return entry
            return [sizes[entry], "dynamic"] if entry in self.dynamic_dims else sizes[entry]

        def form(spec: InputSpec) -> dict[str, Any]:
            return {**spec.to_dict(), "shape": [placed(entry) for entry in spec.shape]}

        return {
            "inputs": to_plain(self.inputs, form),
            "args": to_plain(self.args, form),
            "kwargs": _with_sizes(self.kwargs, sizes),
        }


def _with_sizes(value: Any, sizes: dict[str, int]) -> Any:
    if isinstance(value, dict):
        return {key: _with_sizes(below, sizes) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_with_sizes(below, sizes) for below in value]
    reference = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return sizes[reference[1]] if reference else value


def _remedy(name: str, bound: set[str]) -> str:
    if bound:
        return f"`sizes` binds {_listing(bound)}"
    return f"write sizes = {{ {name} = [1] }}"


def _dollar_names(
    value: Any, where: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _dollar_names(below, (*where, key))
    elif isinstance(value, list | tuple):
        for index, below in enumerate(value):
            yield from _dollar_names(below, (*where, index))
    elif isinstance(value, str) and (reference := _REFERENCE.fullmatch(value)):
        yield where, reference[1]
