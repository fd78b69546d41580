"""The README's table of faults is what the tests saw; each kind has its example and two more."""

from __future__ import annotations

from collections import Counter

from .table import BEGIN, END, KEPT, KINDS, ROOT, read_rows, with_table


def test_the_table_in_the_readme_is_made_from_the_tests_data() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert BEGIN in readme and END in readme
    assert with_table(readme, read_rows(KEPT)) == readme


def test_each_kind_has_three_cases_and_something_that_torch_alone_did() -> None:
    rows = read_rows(KEPT)
    cases = Counter(row["row"] for row in rows)
    assert set(cases) == set(KINDS)
    assert min(cases.values()) >= 3
    assert len({(row["row"], row["case"]) for row in rows}) == len(rows)
    measured = {row["row"] for row in rows if row["alone"]}
    assert {1, 2, 3, 4, 5, 6, 7, 8, 12, 14} <= measured
