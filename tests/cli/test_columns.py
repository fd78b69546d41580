"""Aligned columns: widths of wide letters, sides, colours."""

from __future__ import annotations

import click

from prewarm.cli.columns import Cell, aligned


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    rows = [(Cell("モデル"), Cell("1")), (Cell("a"), Cell("100"))]

    lines = [click.unstyle(line) for line in aligned(("name", "n"), rows, right=frozenset({"n"}))]

    assert lines == ["name      n", "モデル    1", "a       100"]


def test_a_colour_takes_no_room() -> None:
    [_, coloured, plain] = aligned(
        ("a", "b"), [(Cell("x", "red"), Cell("1")), (Cell("x"), Cell("1"))]
    )

    assert click.unstyle(coloured) == plain
