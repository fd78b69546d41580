"""What the tests of ``faults.md``'s kinds saw, kept for the table in the README.

``fault_row`` collects one line per case: what torch alone does, as measured by the test, and what
prewarm says. With ``PREWARM_FAULT_ROWS=FILE`` the lines are written there at the end, one JSON
object per line; ``python tests/faults/table.py FILE`` puts them into the README.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


class FaultRows:
    """The lines of one run."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []

    def add(self, row: int, case: str, *, alone: str | None, said: str) -> None:
        assert said.strip(), "prewarm must say something"
        self.rows.append({"row": row, "case": case, "alone": alone, "said": " ".join(said.split())})


@pytest.fixture(scope="session")
def _fault_rows() -> Iterator[FaultRows]:
    rows = FaultRows()
    yield rows
    target = os.environ.get("PREWARM_FAULT_ROWS")
    if target:
        with Path(target).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows.rows)


@pytest.fixture
def fault_row(_fault_rows: FaultRows) -> Callable[..., None]:
    """Return ``fault_row(row, case, *, alone, said)``."""
    return _fault_rows.add
