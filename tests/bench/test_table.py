"""The README's figures are what was measured last."""

from __future__ import annotations

from .table import BEGIN, END, ROOT, block, latest, soak, with_block


def test_the_figures_in_the_readme_are_made_from_the_kept_results() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert BEGIN in readme and END in readme
    assert with_block(readme, block(latest(), soak())) == readme
