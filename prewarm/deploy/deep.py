"""What torch itself told in a proof, compared with what it tells here (``explain --deep``).

Pure. A fact that either side could not tell is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prewarm.environment import COSTS, Difference

#: Each fact with what a difference costs.
_COSTS = {
    "num_threads": "a full compile: the thread count is part of the generated code's key",
    "vec_isa": COSTS["cpu_isa"],
    "triton_version": "a full compile",
    "torch_source": "a full compile: torch's own source is part of every key",
    "system": "tuned again: choices are kept by device and Triton",
    "matmul_precision": "a full compile",
    "default_dtype": "a full compile",
    "deterministic": "a full compile",
    "inductor_config": "a full compile where the setting is part of the key",
    "dynamo_config": "a full compile where the setting is part of the key",
}

#: What an interpreter has before any code of a model or server runs. A proof that recorded another
#: value got it from the model's own code, which the server runs too and the probe does not.
_DEFAULTS = {
    "matmul_precision": "highest",
    "default_dtype": "torch.float32",
    "deterministic": "False",
    "inductor_config": "",
    "dynamo_config": "",
}

#: Facts that a fact of the environment has already told.
_TOLD_BY = {
    "num_threads": ("threads",),
    "vec_isa": ("cpu_isa", "ATEN_CPU_CAPABILITY", "cxx", "cxx_version"),
    "triton_version": ("triton", "torch"),
    "torch_source": ("torch", "torch_git"),
    "system": ("device", "triton", "torch", "cuda"),
}


def compare_deep(
    recorded: object, present: Mapping[str, Any], told: frozenset[str]
) -> tuple[Difference, ...]:
    """Return what differs beside the facts of the environment that were ``told`` to differ."""
    if not isinstance(recorded, Mapping):
        return ()
    found = []
    for fact, cost in _COSTS.items():
        there, here = recorded.get(fact), present.get(fact)
        if there is None or here is None or there == here:
            continue
        if there != _DEFAULTS.get(fact, there) or not told.isdisjoint(_TOLD_BY.get(fact, ())):
            continue
        if fact.endswith("_config") and any(name.isupper() for name in told):
            continue  # a variable that is told sets it
        found.append(Difference(fact, str(there), str(here), cost))
    return tuple(found)
