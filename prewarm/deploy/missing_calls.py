"""Calls that deployments make and nobody declared, and what to add to ``prewarm.toml`` for them.

Pure. Owns how the inputs of graphs that starts compiled become lines of a declaration. Which shape
set inputs belong to is ``input_sizes.py``'s.

- The lines are a ``[[shapes]]`` table of its own for the end of the file: right however the sizes
  of the known one are written there, and only what is new is compiled.
- Where nothing fits and the whole module is compiled, the table is made of the inputs as they came.
- What cannot be told is left out; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prewarm.deploy.declared_shapes import declared_shapes
from prewarm.deploy.input_sizes import call_of
from prewarm.deploy.toml_text import toml_key, toml_pair, toml_value

Table = Mapping[str, Any]

#: A graph's tensors as they came in: tables of name, dtype and shape.
Inputs = Sequence[Table]

#: Rows that one added table holds; who makes more sizes than these declares a grid.
MOST_ROWS = 16

#: What a declaration can name as an input or a keyword argument of a call.
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)

#: How the name of an added shape set begins where it is like no declared one.
_NEW_NAME = "found"


@dataclass(frozen=True, slots=True)
class Missing:
    """Calls that are not declared: the shape set that they are like, and their sizes.

    ``like`` is None where they are like no declared shape set; then ``sizes`` holds none.
    ``starts`` is in how many starts they were compiled, ``name`` and ``form`` what is to be added.
    """

    like: str | None
    sizes: tuple[dict[str, int], ...]
    starts: int
    name: str
    form: Table

    @property
    def toml(self) -> str:
        """The lines to add, made when they are asked for."""
        return _lines(self.form, self.name, self.sizes)

    def to_dict(self) -> dict[str, Any]:
        """Return it as it stands in JSON."""
        return {
            "shape_set": self.like,
            "sizes": [dict(sizes) for sizes in self.sizes],
            "starts": self.starts,
            "toml": self.toml,
        }


def missing_calls(starts: Iterable[Iterable[Inputs]], declared: object) -> tuple[Missing, ...]:
    """Return what starts compiled for calls that the declaration lacks.

    ``starts`` has for each start the inputs of each graph that it compiled; ``declared`` is what a
    proof records of the declaration.
    """
    shapes = declared_shapes(declared)
    if not shapes:
        return ()
    whole = _table(_table(declared).get("compile")).get("targets") in (["."], (".",))
    rows: dict[str, dict[tuple[tuple[str, int], ...], set[int]]] = {}
    others: dict[tuple[tuple[str, str, tuple[int, ...]], ...], set[int]] = {}
    for number, graphs in enumerate(starts):
        for inputs in graphs:
            call = call_of(inputs, shapes)
            if call is None:
                form = _form(inputs) if whole else None
                if form is not None:
                    others.setdefault(form, set()).add(number)
            elif not call.is_declared and call.sizes:
                row = tuple(call.sizes.items())
                rows.setdefault(call.shape_set, {}).setdefault(row, set()).add(number)
    return tuple(_found(shapes, rows, others))


def _found(
    shapes: Sequence[Table],
    rows: Mapping[str, Mapping[tuple[tuple[str, int], ...], set[int]]],
    others: Mapping[tuple[tuple[str, str, tuple[int, ...]], ...], set[int]],
) -> Iterator[Missing]:
    taken = {str(one.get("name")) for one in shapes}
    for name, calls in rows.items():
        sizes = tuple(dict(row) for row in list(calls)[:MOST_ROWS])
        like = next(one for one in shapes if one.get("name") == name)
        yield Missing(name, sizes, len(set().union(*calls.values())), _free(name, taken), like)
    for form, seen in others.items():
        inputs = {name: {"dtype": dtype, "shape": list(shape)} for name, dtype, shape in form}
        yield Missing(None, (), len(seen), _free(_NEW_NAME, taken), {"inputs": inputs})


def _lines(like: Table, name: str, sizes: Sequence[dict[str, int]]) -> str:
    """Return a ``[[shapes]]`` table of these sizes that is otherwise like another one."""
    lines = ["[[shapes]]", toml_pair("name", name)]
    if like.get("call") not in (None, "", "."):
        lines.append(toml_pair("call", like["call"]))
    lines += [
        f"inputs.{toml_key(one)} = {toml_value(below)}"
        for one, below in _table(like.get("inputs")).items()
    ]
    for key in ("args", "kwargs", "steps", "dynamic_dims"):
        if like.get(key):
            lines.append(toml_pair(key, like[key]))
    if sizes:
        lines.append(toml_pair("sizes", list(sizes)))
    return "\n".join(lines)


def _form(inputs: Inputs) -> tuple[tuple[str, str, tuple[int, ...]], ...] | None:
    """Return the inputs as keyword arguments, or None where they cannot be declared as such."""
    form = []
    for given in inputs:
        name, dtype, shape = str(given.get("name")), given.get("dtype"), given.get("shape")
        if not _NAME.fullmatch(name) or not isinstance(dtype, str) or not isinstance(shape, list):
            return None
        form.append((name, dtype, tuple(shape)))
    return tuple(form) or None


def _free(name: str, taken: set[str]) -> str:
    """Return a name that no shape set has, and take it."""
    number = 2
    while (found := f"{name}-{number}") in taken:
        number += 1
    taken.add(found)
    return found


def _table(value: object) -> Table:
    return value if isinstance(value, Mapping) else {}
