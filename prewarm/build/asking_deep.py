"""What ``prewarm explain --deep`` asks a child for: torch's own facts, without any declaration."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prewarm.build.child import ChildFailed, ChildSpec, run_child
from prewarm.environment import Environment
from prewarm.errors import ConfigError
from prewarm.store.torchside_copy import copy_torchside

#: torch is imported, and the compiler may try some instruction sets.
TIMEOUT_S = 300.0

#: What torch writes when it is asked goes into a directory of its own.
_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def ask_deep(
    variables: Mapping[str, str],
    recorded: Environment,
    interpreter: Sequence[str],
    environ: Mapping[str, str],
) -> dict[str, Any]:
    """Return what torch tells under an interpreter with an entry's variables set.

    Raises:
        ConfigError: the interpreter does not run, has no torch, or sees no GPU where one is needed.
    """
    device = "cpu" if recorded.get("device") == "cpu" else "cuda"
    with tempfile.TemporaryDirectory(prefix="prewarm-explain-") as name:
        directory = Path(name)
        copy = directory / "copy"
        copy_torchside(copy)
        kept = {key: value for key, value in environ.items() if not key.startswith("PREWARM_")}
        own_path = environ.get("PYTHONPATH")
        spec = ChildSpec(
            interpreter=tuple(interpreter) or (sys.executable,),
            copy=copy,
            workdir=directory / "run",
            log=directory / "log",
            environ=kept
            | dict(variables)
            | {key: str(directory / "cache" / key.lower()) for key in _CACHES}
            | {"PYTHONPATH": os.pathsep.join([str(copy), *([own_path] if own_path else [])])},
            timeout_s=TIMEOUT_S,
        )
        try:
            answer = run_child(spec, {"kind": "probe", "device": device, "deep": True})
        except ChildFailed as error:
            raise ConfigError(f"torch tells nothing here: {error}", code=error.code) from error
    deep = answer.get("deep")
    return deep if isinstance(deep, dict) else {}
