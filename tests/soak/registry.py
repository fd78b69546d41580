"""The registry of a soak: checkpoints that arrive in pieces, change, fail, are linked and leave."""

from __future__ import annotations

import json
import random
import shutil
import threading
from pathlib import Path
from typing import Any

#: Kinds of model; checkpoints of one share a bundle unless their graph depends on weights.
ARCHITECTURES = 6
#: So many checkpoints are there at a time.
POPULATION = 16
#: What no packing makes smaller, of each bundle.
BULK_BYTES = 60_000
#: One in so many has a graph of its own, and one in so many does not build.
OWN_GRAPH, BROKEN = 4, 6


class Registry:
    """Owns what is in the directory; used by one thread, and asked for names by others."""

    def __init__(self, root: Path, mended: Path, *, seed: int) -> None:
        self.root = root
        self._mended = mended
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._present: dict[str, bool] = {}
        self._made = 0
        self.happened = {"arrived": 0, "changed": 0, "left": 0, "moved": 0, "linked": 0}

    def names(self, *, sound: bool = False) -> list[str]:
        """Return what is there, or of it only what can be built."""
        with self._lock:
            return [name for name, is_sound in self._present.items() if is_sound or not sound]

    def step(self, stop: threading.Event) -> None:
        """Let one thing happen."""
        present = self.names()
        if len(present) < POPULATION:
            self._arrive(stop)
            return
        name = self._random.choice(present)
        match self._random.randrange(8):
            case 0 | 1 | 2:
                self._leave(name)
            case 3 | 4 | 5:
                self._change(name)
            case 6:
                self._move(name)
            case _:
                self._link(name)

    def mend(self) -> None:
        """Let everything that is there be buildable."""
        self._mended.write_text('{"compile": null, "prove": null}')

    def _arrive(self, stop: threading.Event) -> None:
        self._made += 1
        name = f"model-{self._made % 40:02}/v{self._made}"
        directory = self.root / name
        directory.mkdir(parents=True)
        kind = self._random.randrange(ARCHITECTURES)
        own = self._random.randrange(OWN_GRAPH) == 0
        broken = self._random.randrange(BROKEN) == 0
        behaviour: dict[str, Any] = {
            "graph": f"own-{self._made}" if own else f"kind-{kind}",
            "bulk_bytes": BULK_BYTES,
        }
        if broken:
            word = self._random.choice(["exit", "kill", "rubbish", "stay", "out_of_memory"])
            behaviour |= {"compile": word, "prove": word, "elsewhere": str(self._mended)}
        (directory / "config.json").write_text(json.dumps({"model_type": "bert", "width": kind}))
        (directory / "behaviour.json").write_text(json.dumps(behaviour))
        content = weights(self._made)
        with (directory / "model.safetensors").open("wb", buffering=0) as file:
            for part in (content[:50], content[50:200], content[200:]):
                file.write(part)
                stop.wait(0.2)
        with self._lock:
            self._present[name] = not broken
        self.happened["arrived"] += 1

    def _change(self, name: str) -> None:
        self._made += 1
        beside = self.root / name / "model.safetensors.part"
        beside.write_bytes(weights(self._made))
        beside.rename(self.root / name / "model.safetensors")
        self.happened["changed"] += 1

    def _leave(self, name: str) -> None:
        with self._lock:
            del self._present[name]
        shutil.rmtree(self.root / name)
        self.happened["left"] += 1

    def _move(self, name: str) -> None:
        self._made += 1
        new = f"{name.partition('/')[0]}/v{self._made}"
        with self._lock:
            self._present[new] = self._present.pop(name)
        (self.root / name).rename(self.root / new)
        self.happened["moved"] += 1

    def _link(self, name: str) -> None:
        link = self.root / name.partition("/")[0] / "latest"
        link.unlink(missing_ok=True)
        link.symlink_to(Path(name).name)
        self.happened["linked"] += 1


def weights(number: int) -> bytes:
    """Return a whole safetensors file whose values tell its number."""
    header: dict[str, object] = {}
    for layer in range(20):
        offsets = [64 * layer, 64 * layer + 64]
        header[f"layer.{layer}"] = {"dtype": "F32", "shape": [4, 4], "data_offsets": offsets}
    text = json.dumps(header).encode()
    values = number.to_bytes(8, "little") * (64 * 20 // 8)
    return len(text).to_bytes(8, "little") + text + values
