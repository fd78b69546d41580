"""The README's table of faults, made from what the tests of this folder saw.

Usage: ``PREWARM_FAULT_ROWS=rows.jsonl python -m pytest tests/faults`` and then
``python tests/faults/table.py rows.jsonl``. The lines are kept in ``rows.jsonl`` beside this file,
from which ``test_table.py`` makes the table anew and compares.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).with_name("rows.jsonl")
BEGIN, END = "<!-- faults: made by tests/faults/table.py -->", "<!-- end of faults -->"

#: What a cell holds at most, in characters; a sentence of prewarm's is longer with its next step.
LONGEST = 170

#: The kinds, with the reports that named them.
KINDS = {
    1: "order of shapes (sglang #2507, vllm #27178)",
    2: "recompile limit (TensorRT-LLM #6142)",
    3: "key drift (pytorch #144859, #149096; vllm #47573; dynamo #10695)",
    4: "a hit that compiles",
    5: "re-tuning at each start (pytorch #172819, #189121)",
    6: "uncacheable graphs (pytorch #191106, #130772)",
    7: "directory not usable (triton #518, pytorch #140765)",
    8: "damaged artifacts (vllm #35061, edutelligence #579)",
    9: "many writers (triton #2688, #11512; vllm #24601)",
    10: "another device (vllm #41871, pytorch #170123)",
    11: "half-written checkpoints and lost events (watchdog #586, #654, #504, #793; "
    "triton-server #356)",
    12: "missing toolchain (pytorch #116696)",
    13: "stuck or starved workers (pytorch #190930, sglang #29862)",
    14: "stale code (pytorch #187319)",
    15: "database and unit (codex #30957, redpanda #10944)",
    16: "bundles that lose shapes (rbln #805, unsloth-zoo)",
    17: "many small files (hf-mount)",
}


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Return the lines by kind, in the order in which the tests ran."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return sorted(rows, key=lambda row: int(row["row"]))


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table as Markdown, each kind under a line of its own."""
    lines = ["| fault | torch alone, measured | prewarm says |", "|---|---|---|"]
    kind = None
    for row in rows:
        if row["row"] != kind:
            kind = row["row"]
            lines.append(f"| **{KINDS[kind]}** | | |")
        alone = _cell(row["alone"] or "not measured here")
        lines.append(f"| {_cell(row['case'])} | {alone} | {_cell(row['said'])} |")
    return "\n".join(lines)


def with_table(text: str, rows: list[dict[str, Any]]) -> str:
    """Return a text with the table between its marks replaced."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(rows)}\n\n{END}{after}"


def _cell(text: str) -> str:
    # Directories of a test run and digests of its files say nothing to a reader.
    text = re.sub(r"(?<![\w.])/(?:[\w.+~%-]+/)+(?=[\w.])", "…/", text)
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    text = re.sub(r"\b[0-9a-f]{16,}\b", "…", text).replace("|", "\\|").replace("……", "…")
    if len(text) <= LONGEST:
        return text
    return text[:LONGEST].rsplit(" ", 1)[0].rstrip(" ;,:(") + " …"


def main(arguments: list[str]) -> int:
    if arguments:
        KEPT.write_text(Path(arguments[0]).read_text(encoding="utf-8"), encoding="utf-8")
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(with_table(text, read_rows(KEPT)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
