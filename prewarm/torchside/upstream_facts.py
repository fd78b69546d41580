"""The second half of ``upstream``: what torch's inside tells about its keys, asked and not watched.

Each function is looked for by name and asked by itself; where a release has it no more, or it
raises, the answer is None: "cannot tell".

Seen: torch 2.13.0 (CPU) by reading and by tests.
"""

from __future__ import annotations

import hashlib
import importlib
from typing import Any

#: Settings that say where to cache, what to log or how many helpers work, that prewarm sets on both
#: sides, or that only repeat a variable.
_IDLE_SETTINGS = (
    "compile_threads", "worker_start_method", "recompile_limit", "cache_size_limit",
    "accumulated_recompile_limit", "debug_dir_root", "verbose", "job_id", "log_file_name",
    "quiesce_async_compile_pool", "cache_dir",
)  # fmt: skip
_IDLE_PREFIXES = ("trace", "log", "debug", "repro_", "profil", "generate_intermediate_hooks", "_")


def vec_isa() -> str | None:
    """Return the instruction set that inductor picks; it may try each with the compiler."""
    picked = _called("torch._inductor.cpu_vec_isa", "pick_vec_isa")
    return None if picked is None else str(picked).strip() or "none"


def triton_version() -> str | None:
    """Return the version that Triton gives itself, which its package's may not be."""
    try:
        return str(importlib.import_module("triton").__version__)
    except Exception:
        return None


def torch_key_digest() -> str | None:
    """Return the digest of torch's own source, which is part of every key."""
    key = _called("torch._inductor.codecache", "torch_key")
    return hashlib.sha256(key).hexdigest()[:16] if isinstance(key, bytes) else None


def system_digest() -> str | None:
    """Return the digest of device and Triton under which tuned choices are kept."""
    system = _called("torch._inductor.codecache", "CacheBase.get_system")
    found = system.get("hash") if isinstance(system, dict) else None
    return str(found)[:16] if found else None


def changed_settings(module: str) -> str | None:
    """Return a config module's settings that are not at their default, as ``name=value`` text."""
    try:
        config = importlib.import_module(module)
        is_default, values = config._is_default, config.save_config_portable()
        changed = {
            name: value
            for name, value in values.items()
            if name not in _IDLE_SETTINGS
            and not name.startswith(_IDLE_PREFIXES)
            and not is_default(name)
        }
        return ", ".join("%s=%s" % (name, _short(changed[name])) for name in sorted(changed))
    except Exception:
        return None


def _called(module: str, attribute: str) -> Any:
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
        return found()
    except Exception:
        return None


def _short(value: Any) -> str:
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    return " ".join(repr(value).split())[:80]
