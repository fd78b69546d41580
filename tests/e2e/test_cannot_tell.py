"""A torch in which a watched function has another name: what was not seen is never called warm."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

from ..faults.bed import save_weights

DECLARATION = """\
[model]
loader = "python"
factory = "doubled:build"
path = ["src"]
state_dict = "weights.pt"
device = "cpu"
dtype = "float32"

[compile]
dynamic = false
mode = ["default"]

[[shapes]]
name = "one"
inputs.x = { dtype = "float32", shape = [4] }
"""
SOURCE = """\
import torch


class Doubled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.full((4,), 2.0))

    def forward(self, x):
        return x * self.scale


build = Doubled
"""

#: A scan whose watcher looks for names that this torch does not have, as after a renaming there.
SCAN = """
import sys
from prewarm.build import workspace
from prewarm.cli.main import main
whole = workspace.copy_torchside
def renamed(into):
    whole(into)
    upstream = into / "prewarm_torchside" / "upstream.py"
    text = upstream.read_text()
    for name in ('"FxGraphCache.load_with_key"', '"torch._inductor.cpp_builder"'):
        assert name in text
        text = text.replace(name, name[:-1] + '_of_old"')
    upstream.write_text(text)
workspace.copy_torchside = renamed
sys.exit(main(["scan"]))
"""


def test_an_entry_whose_proof_could_not_be_watched_is_partial(
    make_place: Callable[..., Any],
) -> None:
    place = make_place()
    model = place.registry / "doubled"
    (model / "src").mkdir(parents=True)
    (model / "src" / "doubled.py").write_text(SOURCE)
    (model / "prewarm.toml").write_text(DECLARATION)
    save_weights(SOURCE, model / "weights.pt")
    done = subprocess.run(
        [sys.executable, "-c", SCAN],
        env=place.environ(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, place.compiles()) == (1, 1), done.stderr
    entry = place.status()["doubled"]
    assert (entry["status"], entry["code"]) == ("partial", "cannot_tell")
    assert "fx_misses, cpp_compiled could not be watched" in entry["reason"]
    proof = entry["proof"]
    assert (proof["fx_misses"], proof["cpp_compiled"], proof["graphs_compiled"]) == (None, None, 0)
    assert [graph["outcome"] for graph in proof["graphs"]] == [None]
    assert proof["not_watched"] == [
        "torch._inductor.codecache:FxGraphCache.load_with_key_of_old",
        "torch._inductor.cpp_builder_of_old:CppBuilder.build",
    ]
