"""The shim under several releases of torch: what it changes in each, and what a start saves.

Usage: ``python tests/e2e/releases.py PYTHON... [--out FILE]``, interpreters that have torch.
For each of them a model of one linear layer and one C++ kernel, of nine sizes (one more than torch
keeps), is built, proven and published as ever, and then started by ``prewarm exec``: with the mends
switched off and on, beside a foreign ``sitecustomize``, and by ``python -I``, ``-E`` and ``-S``.
``python tests/e2e/releases.py --table`` writes the table of ``releases.json`` into the README.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).with_name("releases.json")
BEGIN, END = "<!-- releases: made by tests/e2e/releases.py -->", "<!-- end of releases -->"

SIZES = 9

SOURCE = """\
import torch


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(64, 64)

    def forward(self, x):
        return torch.nn.functional.gelu(self.up(x)) * 0.5


def build():
    torch.manual_seed(0)
    return Block()
"""

DECLARATION = """\
[model]
match = "v1"
loader = "torch"
factory = "own:build"
path = ["src"]
state_dict = "weights.pt"
device = "cpu"
weights = "random"
interpreter = [{python}]
[compile]
mode = ["default"]
dynamic = false
[[shapes]]
name = "rows"
args = [{{ dtype = "float32", shape = ["batch", 64] }}]
sizes = {{ batch = {sizes} }}
"""

#: A server without a word of prewarm, but for what it looks up when it has answered.
SERVER = """\
import json, os, sys, time
children = []
def heard(event, args):
    if event == "subprocess.Popen":
        words = args[1].split() if isinstance(args[1], str) else [str(word) for word in args[1]]
        children.append(os.path.basename(words[0]))
sys.addaudithook(heard)
import torch
sys.path.insert(0, sys.argv[1])
import own
model = own.build().eval()
started_s = time.perf_counter()
compiled = torch.compile(model, mode="default", dynamic=False)
with torch.inference_mode():
    for batch in json.loads(sys.argv[2]):
        x = torch.ones(batch, 64)
        assert torch.allclose(compiled(x), model(x), atol=1e-4)
        seconds = seconds if batch > 2 else time.perf_counter() - started_s
from torch._dynamo.utils import counters
shim = sys.modules.get("prewarm_torchside.shim")
print(json.dumps({
    "torch": torch.__version__,
    "first_answer_s": round(seconds, 2),
    "pythons": sum(name.startswith("python") for name in children),
    "compilers": sum(name in ("g++", "c++", "gcc") for name in children),
    "fx_misses": counters["inductor"]["fxgraph_cache_miss"],
    "graphs": counters["stats"]["unique_graphs"],
    "mends": None if shim is None or shim.mends is None else shim.mends.made,
    "foreign": os.environ.get("FOREIGN"),
}))
"""

#: Imports all places that are changed, also those that a start on a CPU does not need.
PLACES = """\
import importlib, json, sys
import torch
shim = sys.modules["prewarm_torchside.shim"]
from prewarm_torchside.mends import MENDS
gone = []
for mend in MENDS:
    try:
        importlib.import_module(mend.module)
    except ImportError:
        gone.append(mend.name)
print(json.dumps({"made": shim.mends.made, "gone": gone, "all": [mend.name for mend in MENDS]}))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pythons", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, default=KEPT)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        write_table(ROOT / "README.md", json.loads(KEPT.read_text()))
        return 0
    found = []
    for python in options.pythons:
        with tempfile.TemporaryDirectory(prefix="prewarm-releases-") as root:
            found.append(tried(python.absolute(), Path(root)))
        print(json.dumps(found[-1]), flush=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


# -- one release


def tried(python: Path, root: Path) -> dict[str, Any]:
    """Build, prove and publish the model under an interpreter, and start it in each way."""
    model = root / "registry" / "block"
    (model / "src").mkdir(parents=True)
    (model / "src" / "own.py").write_text(SOURCE)
    sizes = list(range(2, 2 + SIZES))
    text = DECLARATION.format(python=json.dumps(str(python)), sizes=sizes)
    (model / "prewarm.toml").write_text(text)
    (model / "v1").mkdir()
    save = "import sys, torch; sys.path.insert(0, sys.argv[1]); import own; "
    save += "torch.save(own.build().state_dict(), sys.argv[2])"
    run([python, "-c", save, model / "src", model / "v1" / "weights.pt"], root)
    run([sys.executable, "-m", "prewarm.cli", "scan"], root, may_fail=True)
    entry = json.loads(run([sys.executable, "-m", "prewarm.cli", "status", "--json"], root).stdout)
    (status,) = entry["entries"]
    (root / "server.py").write_text(SERVER)
    (root / "places.py").write_text(PLACES)
    (root / "foreign").mkdir()
    (root / "foreign" / "sitecustomize.py").write_text("import os; os.environ['FOREIGN'] = 'ran'")
    answer = [root / "server.py", model / "src", json.dumps(sizes)]
    off = started(python, root, answer, PREWARM_MENDS="0")
    on = started(python, root, answer, PYTHONPATH=str(root / "foreign"))
    places = started(python, root, [root / "places.py"])
    kept_out = {}
    for flag in ("-I", "-E", "-S"):
        done = executed(
            python, root, [flag, "-c", "import sys; print('prewarm_torchside' in str(sys.modules))"]
        )
        kept_out[flag] = {"inert": done.stdout.strip() == "False", "told": done.stderr.strip()}
    return {
        "torch": on["torch"],
        "python": subprocess.run(
            [python, "-c", "import platform; print(platform.python_version())"],
            capture_output=True, text=True, check=True,
        ).stdout.strip(),
        "status": {name: status[name] for name in ("status", "code", "reason", "requires")},
        "not_watched": (status["proof"] or {}).get("not_watched"),
        "off": off,
        "on": on,
        "places": places,
        "kept_out": kept_out,
    }  # fmt: skip


def started(python: Path, root: Path, words: list[Any], **variables: str) -> dict[str, Any]:
    done = executed(python, root, words, **variables)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def executed(
    python: Path, root: Path, words: list[Any], **variables: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "prewarm.cli", "exec", "block/v1", "--into", root / "into"]
    return run([*command, "--", python, *words], root, may_fail=True, **variables)


def run(
    words: list[Any], root: Path, *, may_fail: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a process that knows only the directories of this release."""
    hidden = ("PREWARM_", "TORCHINDUCTOR_", "TRITON_", "PYTHON")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    environ.pop("CI", None)
    environ |= {
        "PREWARM_REGISTRY": str(root / "registry"), "PREWARM_CACHE_DIR": str(root / "cache"),
        "PREWARM_STATE_DIR": str(root / "state"), "PREWARM_BUILDER": "releases",
        "PREWARM_STEADY": "0", "HOME": str(root),
    } | variables  # fmt: skip
    done = subprocess.run(
        [str(word) for word in words], env=environ, cwd=root, capture_output=True, text=True,
        timeout=1800,
    )  # fmt: skip
    assert may_fail or done.returncode == 0, done.stderr[-3000:]
    return done


# -- the table


def table(found: list[dict[str, Any]]) -> str:
    """Return the table as Markdown: one line for each release, oldest first."""
    lines = [
        "| torch | mends off | with them | changed in this release | left alone | first "
        "answer, mends off → on | Python children | `-I`, `-E`, `-S` |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in sorted(found, key=lambda one: _version(one["torch"])):
        off, on, places = one["off"], one["on"], one["places"]
        made = sorted(set(places["made"]), key=places["all"].index)
        left = sorted(set(places["all"]) - set(made), key=places["all"].index)
        inert = all(
            kept["inert"] and "does not run" in kept["told"] for kept in one["kept_out"].values()
        )
        cells = [
            f"{one['torch']} (Python {one['python']})",
            f"{off['graphs']} of {SIZES} sizes compiled, {off['fx_misses']} missed",
            f"{one['status']['status']}, {on['graphs']} of {SIZES} compiled, "
            f"{on['fx_misses']} missed",
            ", ".join(f"`{name}`" for name in made),
            ", ".join(f"`{name}`" for name in left) or "none",
            f"{off['first_answer_s']} → {on['first_answer_s']} s",
            f"{off['pythons']} → {on['pythons']}",
            "inert, and told" if inert else "not as told",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", text)[:3])


def write_table(readme: Path, found: list[dict[str, Any]]) -> None:
    text = readme.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert rest and after, f"{readme} lacks {BEGIN!r} or {END!r}"
    readme.write_text(f"{before}{BEGIN}\n\n{table(found)}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
