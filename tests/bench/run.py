"""All speed and memory figures, from one command, with the machine named.

    python tests/bench/run.py [--out FILE] [--only PART]... [--readme]

Each figure stands beside its limit. Seconds are of whole processes, medians of five; ratios are
within this run. All parts take some five minutes on two quiet cores. ``--readme`` puts the table of
what was kept (``results/``) into the README; see ``table.py``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

# The parts use what the tests' own helpers know.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.building import build_figures
from bench.commands import hook_figures, status_figures
from bench.figure import Figure
from bench.hook_http import hook_http_figures
from bench.machine import machine
from bench.serving import serve_figures
from bench.table import write_readme
from bench.watching import idle_figures, latency_figures, rescan_figures

from prewarm.store.timestamp import timestamp

PARTS: dict[str, Callable[[Path], list[Figure]]] = {
    "hook": hook_figures,
    "hook-http": hook_http_figures,
    "status": status_figures,
    "serve": serve_figures,
    "build": build_figures,
    "latency": latency_figures,
    "idle": idle_figures,
    "rescan": rescan_figures,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", action="append", choices=list(PARTS))
    parser.add_argument("--readme", action="store_true")
    options = parser.parse_args()
    figures: list[Figure] = []
    for name, part in PARTS.items():
        if options.only and name not in options.only:
            continue
        began_s = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="prewarm-bench-") as root:
            found = part(Path(root))
        print(f"{name}, {time.monotonic() - began_s:.0f} s")
        for figure in found:
            print(f"  {figure}", flush=True)
        figures += found
    result = {"machine": machine(), "at": timestamp(time.time())}
    print(json.dumps(result["machine"]))
    if options.out:
        result["figures"] = [figure.to_dict() for figure in figures]
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")
    if options.readme:
        write_readme()
    return 0 if all(figure.holds for figure in figures) else 1


if __name__ == "__main__":
    raise SystemExit(main())
