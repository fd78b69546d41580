"""Row 5 on a GPU: what a start from torch's own warm cache tunes again, with and without the shim.

Usage: ``python tests/gpu/retuning.py [RESULT.json]``, on a machine with one GPU, torch and
transformers; nothing else of prewarm's requirements is needed. A GPT-2 of 4 layers (random weights,
bf16, (1, 128)) is compiled once under max-autotune; then fresh processes start from copies of that
cache: plain, and twice with the shim's mends. Each is watched; the counts are those of its start
report. Takes two to three minutes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TORCHSIDE = Path(__file__).parents[2] / "prewarm" / "torchside"

SERVER = """\
import json, sys, time
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=4)).to(torch.bfloat16).cuda().eval()
ids = torch.randint(0, 50000, (1, 128), device="cuda")
started_s = time.perf_counter()
compiled = torch.compile(model, mode="max-autotune", dynamic=False)
with torch.inference_mode():
    compiled(input_ids=ids, use_cache=False)
    torch.cuda.synchronize()
    first_s = time.perf_counter() - started_s
shim = sys.modules["prewarm_torchside.shim"]
print(json.dumps({
    "first_answer_s": round(first_s, 2),
    "mends": shim.mends.made if shim.mends else [],
    "torch": torch.__version__,
    "device": torch.cuda.get_device_name(),
}))
"""

FOLD = """\
import json, sys
sys.path.insert(0, sys.argv[1])
from prewarm_torchside.events import read_events
from prewarm_torchside.report import fold
print(json.dumps(fold(read_events(sys.argv[2]), has_triton=True)))
"""


def main(root: Path) -> dict[str, Any]:
    copy = root / "copy"
    shutil.copytree(TORCHSIDE, copy / "prewarm_torchside")
    shutil.move(copy / "prewarm_torchside" / "sitecustomize.py", copy)
    deployment = root / "deployment"
    deployment.mkdir()
    (deployment / "env.json").write_text(
        '{"format": 1, "caches": {}, "variables": {}, "entries": []}'
    )
    arms = {"cold": _start(root, copy, "cold", {})}
    shutil.copytree(root / "cache", root / "kept")
    for name, variables in (
        ("upstream's warm cache", {}),
        ("with the shim", {"PREWARM_DIR": str(deployment)}),
        ("with the shim, again", {"PREWARM_DIR": str(deployment)}),
    ):
        shutil.rmtree(root / "cache")
        shutil.copytree(root / "kept", root / "cache")
        arms[name] = _start(root, copy, name, variables)
    return arms


def _start(root: Path, copy: Path, name: str, variables: dict[str, str]) -> dict[str, Any]:
    reports = root / ("report of " + name)
    environ = {
        **os.environ,
        "PYTHONPATH": str(copy),
        "PREWARM_REPORT_DIR": str(reports),
        "TORCHINDUCTOR_CACHE_DIR": str(root / "cache" / "inductor"),
        "TRITON_CACHE_DIR": str(root / "cache" / "triton"),
        "HF_HUB_OFFLINE": "1",
        **variables,
    }
    done = subprocess.run(
        [sys.executable, "-c", SERVER], env=environ, check=True, capture_output=True, text=True
    )
    folded = subprocess.run(
        [sys.executable, "-c", FOLD, str(copy), str(reports)],
        check=True,
        capture_output=True,
        text=True,
    )
    report = json.loads(folded.stdout)
    counts = {key: value for key, value in report.items() if isinstance(value, int)}
    told = {**json.loads(done.stdout.strip().splitlines()[-1]), **counts}
    sys.stderr.write(f"{name}: {told}\n")
    return told


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        found = json.dumps(main(Path(directory)), indent=1)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(found + "\n")
    else:
        print(found)
