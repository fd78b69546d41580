"""Real registries in a temporary directory, written byte by byte."""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path

import pytest

MINILM = """
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
sizes = [{ batch = 1, seq = 32 }, { batch = 8, seq = 64 }]
"""

PYTHON = """
[model]
loader = "python"
factory = "net:make"
device = "cpu"
[compile]
dynamic = false
[[shapes]]
name = "x"
args = [{ dtype = "float32", shape = [1, 8] }]
"""


def safetensors_bytes(tensors: dict[str, tuple[str, list[int]]], fill: int = 1) -> bytes:
    """Return a file with tensors of 4-byte or 2-byte elements, every byte ``fill``."""
    header, at = {}, 0
    for name, (dtype, shape) in tensors.items():
        size = {"F32": 4, "BF16": 2, "I64": 8}[dtype]
        for entry in shape:
            size *= entry
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + bytes([fill]) * at


class Registry:
    """A registry to be filled; ``scan`` looks at it as if it had been quiet for a minute."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()

    def write(self, name: str, content: str | bytes = b"") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def link(self, name: str, target: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
        return path

    def bert(self, name: str, *, fill: int = 1) -> Path:
        """Write a small checkpoint as transformers saves it."""
        config = {"model_type": "bert", "architectures": ["BertModel"], "vocab_size": 100}
        self.write(f"{name}/config.json", json.dumps(config))
        tensors = {"w": ("F32", [4, 4]), "b": ("F32", [4])}
        self.write(f"{name}/model.safetensors", safetensors_bytes(tensors, fill))
        return self.root / name

    def scan(self, *, settle_s: float = 2.0, later_s: float = 60.0):
        from prewarm.registry.scan import scan_registry

        return scan_registry(self.root, settle_s=settle_s, now_s=time.time() + later_s)

    def names(self) -> dict[str, tuple[str, ...]]:
        return {one.checkpoint.name: one.checkpoint.aliases for one in self.scan()}


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


@pytest.fixture
def minilm() -> str:
    return MINILM


@pytest.fixture
def python_model() -> str:
    return PYTHON


@pytest.fixture
def safetensors():
    return safetensors_bytes


@pytest.fixture
def packaged():
    """Return the finder of a file in an installed package; skips where it is not installed."""

    def find(package: str, *parts: str) -> Path:
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            pytest.skip(f"{package} is not installed")
        return Path(spec.submodule_search_locations[0], *parts)

    return find
