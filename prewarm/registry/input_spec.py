"""One declared tensor, and the trees of tensors that a call takes.

Owns the keys of an input and the walk over nested tables and lists. Does not know sizes:
``shape_set`` binds the names in a shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Tag, model_validator
from typing_extensions import TypeAliasType

from prewarm.registry.toml_scalars import Issue, Table, refuse

FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")

#: Tags of the union; the angle brackets keep them apart from keys that people write.
TENSOR, TABLE, LIST = "<tensor>", "<table>", "<list>"


def _shape(value: object) -> object:
    if not isinstance(value, list | tuple):
        return value
    issues: list[Issue] = []
    for index, entry in enumerate(value):
        if isinstance(entry, str):
            if not entry.isidentifier():
                hint = f'; write "{entry[1:]}"' if entry[1:].isidentifier() else ""
                issues.append(((index,), f"is {entry!r}, expected a name of `sizes`{hint}"))
        elif isinstance(entry, bool) or not isinstance(entry, int) or entry < 0:
            issues.append(((index,), f"is {entry!r}, expected a whole number or a name of `sizes`"))
    refuse(issues)
    return tuple(value)


def _number(value: object) -> object:
    if value is not None and not isinstance(value, bool | int | float):
        refuse([((), f"is {value!r}, expected a number")])
    return value


Number = Annotated[Any, BeforeValidator(_number)]


class InputSpec(Table):
    """One tensor: ``fill`` makes it constant, else its values are drawn from ``low`` to ``high``.

    ``shape`` entries are numbers or names that ``sizes`` binds; ``[]`` is a scalar. ``high`` is
    exclusive for whole numbers, as in ``torch.randint``.
    """

    dtype: Literal[
        "bool", "uint8", "int8", "int16", "int32", "int64",
        "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
    ]  # fmt: skip
    shape: Annotated[tuple[int | str, ...], BeforeValidator(_shape)]
    high: Number = None
    low: Number = None
    fill: Number = None

    @model_validator(mode="after")
    def _values_make_sense(self) -> InputSpec:
        issues: list[Issue] = []
        if self.fill is not None and (self.high is not None or self.low is not None):
            issues.append((("fill",), "is stated beside `high` or `low`; keep one of them"))
        low = 0 if self.low is None else self.low
        if self.high is not None and self.high <= low:
            issues.append((("high",), f"is {self.high!r}, expected more than low, {low!r}"))
        elif self.high is None and low >= 2 and self.dtype not in FLOATS:
            issues.append((("high",), f"is not stated for low = {low!r}; write both"))
        if self.dtype not in FLOATS + COMPLEX:
            issues += [
                ((key,), f'is {value!r}, expected a whole number for dtype "{self.dtype}"')
                for key, value in (("high", self.high), ("low", self.low), ("fill", self.fill))
                if isinstance(value, float)
            ]
        refuse(issues)
        return self

    def names(self) -> tuple[str, ...]:
        """Return the names in the shape that ``sizes`` must bind."""
        return tuple(entry for entry in self.shape if isinstance(entry, str))

    def to_dict(self) -> dict[str, Any]:
        """Return the plain form that a child reads."""
        return {
            "dtype": self.dtype,
            "shape": list(self.shape),
            "high": self.high,
            "low": self.low,
            "fill": self.fill,
        }


def _kind(value: object) -> str | None:
    if isinstance(value, InputSpec):
        return TENSOR
    if isinstance(value, list | tuple):
        return LIST
    if not isinstance(value, Mapping):
        return None
    if isinstance(value.get("dtype"), str) or isinstance(value.get("shape"), list):
        return TENSOR
    # A table of tables is a nesting; `{ shape = 3 }` or `{ fill = 1 }` is a faulty tensor.
    nested = value and all(isinstance(below, Mapping | list) for below in value.values())
    return TABLE if nested else TENSOR


if TYPE_CHECKING:
    # mypy follows no alias that contains itself through Annotated.
    InputTree = Any
else:
    InputTree = TypeAliasType(
        "InputTree",
        Annotated[
            Annotated[InputSpec, Tag(TENSOR)]
            | Annotated[list["InputTree"], Tag(LIST)]
            | Annotated[dict[str, "InputTree"], Tag(TABLE)],
            Discriminator(_kind),
        ],
    )


def tensors(tree: Any, where: tuple[str | int, ...] = ()) -> Iterator[tuple[Any, InputSpec]]:
    """Yield each tensor of a tree with its place, in order."""
    if isinstance(tree, InputSpec):
        yield where, tree
    elif isinstance(tree, Mapping):
        for key, below in tree.items():
            yield from tensors(below, (*where, key))
    else:
        for index, below in enumerate(tree):
            yield from tensors(below, (*where, index))


def to_plain(tree: Any, form: Callable[[InputSpec], Any] = InputSpec.to_dict) -> Any:
    """Return a tree of inputs as plain tables and lists, each tensor in its ``form``."""
    if isinstance(tree, InputSpec):
        return form(tree)
    if isinstance(tree, Mapping):
        return {key: to_plain(below, form) for key, below in tree.items()}
    return [to_plain(below, form) for below in tree]
