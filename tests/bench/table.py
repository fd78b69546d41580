"""The README's table of figures, made from what was measured last: ``results/``.

    python tests/bench/table.py

``test_table.py`` makes it anew from the kept results and compares.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).with_name("results")
#: What of the soak the README shows; the file has all.
SHOWN = (
    "resident_mb", "descriptors", "threads", "database_mb", "work_mb", "logs", "quarantine_mb",
    "rows of events",
)  # fmt: skip
BEGIN, END = "<!-- figures: made by tests/bench/table.py -->", "<!-- end of figures -->"


def latest() -> Path:
    """Return the newest results of the figures, which are named for their day."""
    return max(KEPT.glob("cpu-*.json"))


def soak() -> Path:
    """Return the newest result of the soak."""
    return max(KEPT.glob("soak-*.json"))


def block(results: Path, soaked: Path) -> str:
    """Return what stands between the marks: the machine, the figures, and the soak."""
    result = json.loads(results.read_text(encoding="utf-8"))
    lines = [
        f"What `tests/bench/run.py` measured on {_machine(result)}, {result['at'][:10]} "
        f"(`{results.relative_to(ROOT)}`):",
        "",
        "| what | measured | limit |",
        "|---|---|---|",
    ]
    for figure in result["figures"]:
        side = "at least " if figure.get("at_least") else ""
        unit = _unit(figure["unit"])
        said = f"{_number(figure['measured'])}{unit}"
        mark = "" if figure["holds"] else " (missed)"
        limit = f"{side}{_number(figure['limit'])}{unit}"
        lines.append(f"| {figure['name']} | {said}{mark} | {limit} |")
    return "\n".join([*lines, "", *_soak(soaked)])


def _soak(results: Path) -> list[str]:
    result = json.loads(results.read_text(encoding="utf-8"))
    minutes = result["seconds"] / 60
    lines = [
        f"What {minutes:.0f} minutes of everything at once (`tests/soak`: checkpoints arriving, "
        "changing and leaving, hooks and deployments asking,",
        f"children killed, bundles damaged) took of the service, {result['compared']} "
        f"(`{results.relative_to(ROOT)}`):",
        "",
        "| what | second quarter | last quarter | allowed |",
        "|---|---|---|---|",
    ]
    for one in result["courses"]:
        if one["name"] not in SHOWN:
            continue
        name = one["name"].removesuffix("_mb").replace("_", " ")
        unit = " MB" if one["name"].endswith("_mb") else ""
        numbers = [one["second_quarter"], one["last_quarter"], one["allowed"]]
        mark = "" if one["flat"] else " (grew)"
        cells = [f"{_number(number)}{unit}" for number in numbers]
        lines.append(f"| {name} | {cells[0]} | {cells[1]}{mark} | {cells[2]} |")
    return lines


def _machine(result: dict[str, Any]) -> str:
    machine = result["machine"]
    torch, python = machine["torch"], machine["python"]
    return f"{machine['cores']} cores of an {machine['cpu']} (torch {torch}, Python {python})"


def _number(value: float) -> str:
    if value and abs(value) < 1:
        return f"{value:.2g}"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.1f}"


def _unit(unit: str) -> str:
    if unit == "ratio":
        return " of it"
    return unit if unit in ("/s", "%") else f" {unit}"


def with_block(text: str, made: str) -> str:
    """Return a text with what stands between its marks replaced."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{after}"


def write_readme() -> None:
    """Put the newest results into the README."""
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(with_block(text, block(latest(), soak())), encoding="utf-8")


if __name__ == "__main__":
    write_readme()
