"""The value types that declarations share, and the one way their validators report several issues.

Owns strict lists as tuples, names of functions, plain (JSON) values, and ``refuse``. Does not know
which table a value stands in.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

#: One issue: where it is below the validated table, and what is wrong and what to do.
Issue = tuple[tuple[str | int, ...], str]

#: The type of the pydantic error whose context carries our own issues.
ISSUES = "prewarm_issues"

FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class Table(BaseModel):
    """A TOML table: frozen, strict, and closed to keys that nobody knows."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", protected_namespaces=())


def refuse(issues: Iterable[Issue]) -> None:
    """Raise all ``issues`` as one validation error; do nothing when there are none."""
    found = [(tuple(where), text) for where, text in issues]
    if found:
        raise PydanticCustomError(ISSUES, "issues", {"issues": found})


def _tuple_of_list(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _function(value: str) -> str:
    if value and not FUNCTION.fullmatch(value):
        refuse([((), f'is {value!r}, expected "package.module:function"')])
    return value


def _plain(value: object) -> object:
    issues: list[Issue] = []
    _collect_not_plain(value, (), issues)
    refuse(issues)
    return value


def _collect_not_plain(value: object, where: tuple[str | int, ...], issues: list[Issue]) -> None:
    if isinstance(value, Mapping):
        for key, below in value.items():
            _collect_not_plain(below, (*where, str(key)), issues)
    elif isinstance(value, list | tuple):
        for index, below in enumerate(value):
            _collect_not_plain(below, (*where, index), issues)
    elif isinstance(value, float) and not math.isfinite(value):
        issues.append((where, f"is {value}, expected a finite number"))
    elif value is not None and not isinstance(value, bool | int | float | str):
        issues.append((where, f"is a {type(value).__name__}, expected a plain value"))


#: A list of strings in TOML, kept as a tuple.
Strings = Annotated[tuple[str, ...], BeforeValidator(_tuple_of_list)]
#: "package.module:function", or "" for none.
Function = Annotated[str, AfterValidator(_function)]
#: A table of plain values (numbers, strings, booleans, lists and tables of these).
PlainTable = Annotated[dict[str, Any], BeforeValidator(_plain)]


def matching(pattern: str, expected: str) -> AfterValidator:
    """Return the validator of a string that must match ``pattern`` as a whole."""
    compiled = re.compile(pattern, re.ASCII)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            refuse([((), f"is {value!r}, expected {expected}")])
        return value

    return AfterValidator(check)


def as_tuple() -> BeforeValidator:
    """Return the validator that takes a TOML list where a tuple is kept."""
    return BeforeValidator(_tuple_of_list)
