"""The small registry of ``prewarm demo``: written on the spot, without torch and without a network.

Three checkpoints: a GPT-2 of four layers from its config alone (random weights), and two of one
own small network, so that the second shares the first one's bundle.
"""

from __future__ import annotations

import array
import importlib.util
import json
import random
import struct
from pathlib import Path

_GPT2_CONFIG = {
    "architectures": ["GPT2Model"],
    "model_type": "gpt2",
    "n_embd": 256,
    "n_head": 8,
    "n_layer": 4,
    "n_positions": 256,
    "vocab_size": 8192,
}

_GPT2_DECLARATION = """\
# How the server loads, compiles and calls this model.
[model]
loader = "transformers"
class = "AutoModel"
weights = "random"          # the demo has no weights to load; leave this out for yours
device = "cpu"
dtype = "float32"

[compile]
dynamic = false             # every input size is a graph of its own

[[shapes]]
name = "prompt"
inputs.input_ids = { dtype = "int64", shape = ["batch", "seq"], high = 8192 }
kwargs = { use_cache = false }
sizes = [{ batch = 1, seq = 128 }]
"""

_CLASSIFIER_SOURCE = '''\
"""The demo's own network: what `factory` in prewarm.toml names."""

from torch import nn


def build(width):
    return nn.Sequential(
        nn.Linear(64, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 10)
    )
'''

_CLASSIFIER_DECLARATION = """\
# One declaration covers every version that lands below this directory.
[model]
match = "v*"
loader = "torch"
factory = "classifier:build"
path = ["source"]
kwargs = { width = 256 }
state_dict = "model.safetensors"
device = "cpu"

[compile]
dynamic = false

[[shapes]]
name = "rows"
args = [{ dtype = "float32", shape = ["batch", 64] }]
sizes = { batch = [8] }
"""

_WIDTH = 256
_LAYERS = (("0", 64, _WIDTH), ("2", _WIDTH, _WIDTH), ("4", _WIDTH, 10))


def write_demo_registry(root: Path) -> None:
    """Write the demo's checkpoints and declarations below ``root``."""
    if importlib.util.find_spec("transformers") is not None:
        gpt2 = root / "gpt2-small" / "v1"
        gpt2.mkdir(parents=True)
        (gpt2 / "config.json").write_text(json.dumps(_GPT2_CONFIG, indent=2))
        (gpt2 / "prewarm.toml").write_text(_GPT2_DECLARATION)
    classifier = root / "classifier"
    (classifier / "source").mkdir(parents=True)
    (classifier / "source" / "classifier.py").write_text(_CLASSIFIER_SOURCE)
    (classifier / "prewarm.toml").write_text(_CLASSIFIER_DECLARATION)
    for seed, version in enumerate(("v1", "v2")):
        (classifier / version).mkdir()
        (classifier / version / "model.safetensors").write_bytes(_weights(seed))


def _weights(seed: int) -> bytes:
    """Return a safetensors file: header length, JSON header, float32 values."""
    numbers = random.Random(seed)
    header: dict[str, object] = {}
    body = b""
    for name, fan_in, fan_out in _LAYERS:
        for tensor, shape in (("weight", [fan_out, fan_in]), ("bias", [fan_out])):
            count = fan_out * (fan_in if tensor == "weight" else 1)
            bound = fan_in**-0.5
            values = array.array("f", (numbers.uniform(-bound, bound) for _ in range(count)))
            data = values.tobytes()
            header[f"{name}.{tensor}"] = {
                "dtype": "F32",
                "shape": shape,
                "data_offsets": [len(body), len(body) + len(data)],
            }
            body += data
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body
