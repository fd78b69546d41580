"""The part of ``upstream.py`` for a process that may have begun to use torch already.

Owns how far torch is: whether a variable that is set now is still read, and what can be set in its
place. Looks at ``sys.modules`` alone and imports nothing of torch.

Seen: torch 2.13.0 by test; 2.9.1 and 2.14.1 by reading.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

#: How far torch is, from nothing to having compiled.
ABSENT, IMPORTED, COMPILED = "absent", "imported", "compiled"

#: Read anew at each use: the cache directories (torch/_inductor/runtime/cache_dir_utils.py,
#: Triton's knobs), compiling switched off (torch/_dynamo/eval_frame.py); what only children read.
_READ_LATE = frozenset(
    ["TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHDYNAMO_DISABLE", "PYTHONPATH"]
)

#: Inductor's settings that repeat a variable as it was when their module was imported.
_SETTINGS = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "cpp_cache_precompile_headers"}

_CONFIG = "torch._inductor.config"
_THREADS = "OMP_NUM_THREADS"


def how_far() -> str:
    """Tell whether torch is absent, imported, or has compiled in this process."""
    if "torch" not in sys.modules:
        return ABSENT
    return COMPILED if _has_compiled() else IMPORTED


def _has_compiled() -> bool:
    utils = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", None) or {}
    if any(counters.get(name) for name in ("frames", "stats")):
        return True
    codecache = sys.modules.get("torch._inductor.codecache")
    return bool(getattr(getattr(codecache, "PyCodeCache", None), "modules", None))


def make_up(variables: Mapping[str, str], changed: Iterable[str]) -> list[str]:
    """Set in torch what variables that just changed are too late for; return those left over."""
    return [name for name in changed if not _made_up(name, variables[name])]


def _made_up(name: str, value: str) -> bool:
    if name in _READ_LATE or name.startswith("PREWARM_"):
        return True
    torch = sys.modules.get("torch")
    if torch is None:
        return True
    if name == _THREADS:
        return _set_threads(torch, value)
    config = sys.modules.get(_CONFIG)
    if config is None:
        return name.startswith("TORCHINDUCTOR_")
    setting = _SETTINGS.get(name)
    if setting is None or not isinstance(getattr(config, setting, None), bool):
        return False
    setattr(config, setting, value == "1")
    return True


def _set_threads(torch: Any, value: str) -> bool:
    if not value.isdecimal() or not int(value):
        return False
    torch.set_num_threads(int(value))
    return True
