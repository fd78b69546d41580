"""A registry of small models for the kinds of fault, and starts with torch alone beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..place import TIMEOUT_S, Place

#: A product, one kernel of C++ (each costs g++ some seconds) and a float attribute.
BLOCK = """\
import torch


class Block(torch.nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.up = torch.nn.Linear(width, width)
        self.share = 0.5

    def forward(self, x):
        return x + torch.nn.functional.gelu(self.up(x)) * self.share


def build():
    torch.manual_seed(0)
    return Block()
"""

DECLARATION = """\
[model]
match = "v*"
loader = "torch"
factory = "own:build"
path = ["src"]
state_dict = "weights.pt"
device = "cpu"
[compile]
mode = ["default"]
dynamic = false
[[shapes]]
name = "rows"
args = [{ dtype = "float32", shape = ["batch", 64] }]
sizes = { batch = [8] }
"""


def save_weights(source: str, file: Path, *, scale: float = 1.0) -> None:
    """Save the state of what a source's ``build`` makes, scaled.

    In this process, since a new one takes seconds to import torch.
    """
    import torch

    own: dict[str, Any] = {"__name__": "own"}
    exec(compile(source, str(file), "exec"), own)
    state = own["build"]().state_dict()
    torch.save({name: value * scale for name, value in state.items()}, file)


@dataclass(frozen=True)
class Model:
    """One model's directory in the registry, its source and its first version."""

    place: Place
    name: str
    #: The source whose ``build`` makes its weights.
    weights_of: str = BLOCK

    @property
    def directory(self) -> Path:
        return self.place.registry / self.name

    @property
    def source(self) -> Path:
        return self.directory / "src" / "own.py"

    @property
    def entry(self) -> dict[str, Any]:
        """What ``status --json`` says of the first version."""
        return self.place.status()[f"{self.name}/v1"]

    def declare(self, *changes: tuple[str, str]) -> None:
        """Write the declaration with some texts replaced."""
        text = DECLARATION
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        (self.directory / "prewarm.toml").write_text(text)

    def version(self, name: str, scale: float = 1.0) -> Path:
        """Add a version with other weights."""
        directory = self.directory / name
        directory.mkdir()
        save_weights(self.weights_of, directory / "weights.pt", scale=scale)
        return directory

    def alone(
        self,
        cache: Path,
        calls: list[list[list[int]]],
        *,
        variables: Mapping[str, str] | None = None,
        python: tuple[str, ...] = (sys.executable,),
        **asked: Any,
    ) -> dict[str, int]:
        """Start torch alone on a cache directory of its own and return what it did."""
        request = {"path": str(self.source.parent), "factory": "own:build", "calls": calls}
        environ = self.place.environ() | {"TORCHINDUCTOR_CACHE_DIR": str(cache)}
        environ["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] = "0"
        done = subprocess.run(
            [*python, str(Path(__file__).with_name("alone.py")), json.dumps(request | asked)],
            env=environ | dict(variables or {}),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        told: dict[str, int] = json.loads(done.stdout.strip().splitlines()[-1])
        return told


def make_model(
    place: Place,
    name: str,
    *changes: tuple[str, str],
    source: str = BLOCK,
    added: str = "",
    more: Mapping[str, str] | None = None,
    weights_of: str | None = None,
) -> Model:
    """Add a model with one version to the registry; ``more`` are files beside its source.

    ``weights_of`` is another source of the same parameters, for one that this process must not run.
    """
    model = Model(place, name, weights_of or source + added)
    (model.directory / "src").mkdir(parents=True)
    model.source.write_text(source + added)
    for file, text in (more or {}).items():
        model.source.with_name(file).write_text(text)
    model.declare(*changes)
    model.version("v1")
    return model


def reason_of(model: Model) -> str:
    """Return the status, code and reason as one line for the table."""
    entry = model.entry
    return f"{entry['status']}, {entry['code']}: {entry['reason']}"


def without_prewarm(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of a process that knows nothing of prewarm."""
    found = dict(os.environ if environ is None else environ)
    return {name: value for name, value in found.items() if not name.startswith("PREWARM_")}
