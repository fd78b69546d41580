"""Plain aligned columns: what a listing prints without the start-up time of rich.

Owns widths. Colours are click's, which leaves them out where the output is no terminal.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import click


@dataclass(frozen=True, slots=True)
class Cell:
    """A text in a table, with its colour on a terminal."""

    text: str
    colour: str | None = None


def aligned(
    titles: Sequence[str], rows: Sequence[Sequence[Cell]], *, right: frozenset[str] = frozenset()
) -> list[str]:
    """Return the lines of a table; the columns named in ``right`` are aligned to the right."""
    widths = [
        max([_width(title), *(_width(row[number].text) for row in rows)])
        for number, title in enumerate(titles)
    ]
    sides = [title in right for title in titles]
    header = [Cell(title, "bright_black") for title in titles]
    return [_line(row, widths, sides) for row in (header, *rows)]


def _line(row: Sequence[Cell], widths: Sequence[int], sides: Sequence[bool]) -> str:
    parts = []
    last = len(row) - 1
    for number, (cell, width, is_right) in enumerate(zip(row, widths, sides, strict=True)):
        padding = " " * (width - _width(cell.text))
        text = click.style(cell.text, fg=cell.colour) if cell.colour else cell.text
        if is_right:
            parts.append(padding + text)
        else:
            parts.append(text if number == last else text + padding)
    return "  ".join(parts).rstrip()


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.combining(character)
        else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )
