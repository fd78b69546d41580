"""Strict reading of untrusted JSON: every field checked, every issue kept.

Owns the checks of single values and how issues become one line. Knows none of the keys. A check
that fails notes the issue and answers with an empty value, so that reading goes on to the end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from typing import Any

from prewarm.errors import ManifestUnavailable
from prewarm.store.status import Status

_SHA256 = re.compile(r"[0-9a-f]{64}")

#: More issues than these are counted instead of told.
_TOLD_ISSUES = 12

#: No text in a manifest is longer; a longer one is told short.
_TOLD_CHARACTERS = 60

#: What prewarm writes is nested less than ten deep; who walks through a value must not sink in it.
_DEEPEST = 32


class Reading:
    """The issues met so far."""

    def __init__(self) -> None:
        self.issues: list[str] = []

    def refuse(self) -> None:
        """Pass if nothing was wrong.

        Raises:
            ManifestUnavailable: with all issues in one line.
        """
        if not self.issues:
            return
        told = self.issues[:_TOLD_ISSUES]
        if len(self.issues) > _TOLD_ISSUES:
            told.append(f"and {len(self.issues) - _TOLD_ISSUES} more")
        raise ManifestUnavailable("; ".join(told), code="bad_manifest")

    def wrong(self, where: str, found: object, expected: str) -> None:
        """Note that something else was expected."""
        told = repr(found)
        if len(told) > _TOLD_CHARACTERS:
            told = told[:_TOLD_CHARACTERS] + "…"
        self.issues.append(f"{where}: found {told}, expected {expected}")

    def table(
        self, value: object, where: str, owner: type, also: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Return a table with exactly the fields of ``owner`` as keys; a missing one is None."""
        names = _names(owner, tuple(also))
        if not isinstance(value, dict):
            self.wrong(where or "signed", value, "a table")
            return dict.fromkeys(names)
        if value.keys() != names:
            dot = f"{where}." if where else ""
            self.issues.extend(f"{dot}{name}: is missing" for name in sorted(names - value.keys()))
            self.issues.extend(f"{dot}{name}: unknown key" for name in sorted(value.keys() - names))
            return {**dict.fromkeys(names), **value}
        return value

    def mapping(self, value: object, where: str) -> dict[str, Any]:
        """Return a table with any keys."""
        if isinstance(value, dict):
            return value
        self.wrong(where, value, "a table")
        return {}

    def report(self, value: object, where: str) -> dict[str, Any]:
        """Return a table with any keys and values, nested as far as a start report may be."""
        found = self.mapping(value, where)
        if _is_deeper(found, _DEEPEST):
            self.issues.append(f"{where}: is nested deeper than {_DEEPEST} levels")
        return found

    def rows(self, value: object, where: str) -> list[Any]:
        """Return a list."""
        if isinstance(value, list | tuple):
            return list(value)
        self.wrong(where, value, "a list")
        return []

    def text(self, value: object, where: str) -> str:
        """Return a text that is not empty."""
        if isinstance(value, str) and value:
            return value
        self.wrong(where, value, "a text")
        return ""

    def optional_text(self, value: object, where: str) -> str | None:
        """Return a text or None."""
        return None if value is None else self.text(value, where)

    def texts(self, value: object, where: str) -> tuple[str, ...]:
        """Return a list of texts."""
        return tuple(
            self.text(found, f"{where}[{number}]")
            for number, found in enumerate(self.rows(value, where))
        )

    def facts(self, value: object, where: str) -> dict[str, str | None]:
        """Return the facts of an environment: texts, or None for what is not there."""
        found = self.mapping(value, where)
        for name, fact in found.items():
            if fact is not None and not isinstance(fact, str):
                self.wrong(f"{where}.{name}", fact, "a text or null")
        return found

    def count(self, value: object, where: str) -> int:
        """Return a whole number that is not negative."""
        if type(value) is int and value >= 0:
            return value
        self.wrong(where, value, "a whole number")
        return 0

    def optional_count(self, value: object, where: str) -> int | None:
        """Return such a number or None."""
        return None if value is None else self.count(value, where)

    def optional_number(self, value: object, where: str) -> float | None:
        """Return a number that is not negative and not infinite, or None."""
        if value is None:
            return None
        if (type(value) is int or type(value) is float) and value >= 0 and math.isfinite(value):
            return value
        self.wrong(where, value, "a number")
        return None

    def sha256(self, value: object, where: str) -> str:
        """Return a digest: it becomes part of a path."""
        if isinstance(value, str) and _SHA256.fullmatch(value):
            return value
        self.wrong(where, value, "64 hexadecimal digits")
        return ""

    def status(self, value: object, where: str, allowed: frozenset[Status]) -> Status:
        """Return one of the statuses that may stand there."""
        if isinstance(value, str) and value in allowed:
            return Status(value)
        self.wrong(where, value, " or ".join(status for status in Status if status in allowed))
        return Status.FAILED


def _is_deeper(value: dict[str, Any] | list[Any], levels: int) -> bool:
    if levels == 0:
        return True
    below = value.values() if isinstance(value, dict) else value
    return any(_is_deeper(one, levels - 1) for one in below if isinstance(one, dict | list))


@cache
def _names(owner: type, also: tuple[str, ...]) -> frozenset[str]:
    return frozenset((*(field.name for field in fields(owner)), *also))
