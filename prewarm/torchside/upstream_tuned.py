"""A part of ``upstream.py``: where torch and Triton look for what was tuned, and with which ptxas.

Owns faults by which a kernel that was tuned at the build is tuned or compiled again at a start.
They were seen on an H200 with torch 2.11.0 and Triton 3.6.0, and stand in torch 2.13.0's source.
"""

from __future__ import annotations

import functools
import json
import os

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any


def look_at_present_place(heuristics: ModuleType) -> bool:
    """Let a kernel from the graph cache look for its tuned configuration in this process's cache.

    ``heuristics`` is torch._inductor.runtime.triton_heuristics. A graph entry keeps each kernel
    with the path of its source at the build, and ``recheck_autotune_cache`` looks beside *that*
    path for the ``.best_config``, as does the hook that saves a new one: at another path nothing is
    found, everything is tuned again, and the result is written into the builder's directory.
    Returns False without Triton, and where nothing is as expected.
    """
    autotuner = getattr(heuristics, "CachingAutotuner", None)
    recheck = getattr(autotuner, "recheck_autotune_cache", None)
    if autotuner is None or recheck is None or getattr(heuristics, "triton", None) is None:
        return False

    @functools.wraps(recheck)
    def recheck_autotune_cache(self: Any, reload_kernel_from_src: Callable[[], Any]) -> Any:
        _move(self)
        return recheck(self, reload_kernel_from_src)

    autotuner.recheck_autotune_cache = recheck_autotune_cache
    return True


def look_beside_group(cache: ModuleType) -> bool:
    """Let Triton find a kernel's artifacts in the folder where their list lies.

    ``cache`` is triton.runtime.cache. Its group files hold absolute paths; the hook writes those of
    the private directory, which a pod may see under another one.
    """
    manager = getattr(cache, "FileCacheManager", None)
    inner = getattr(manager, "get_group", None)
    if manager is None or inner is None:
        return False

    @functools.wraps(inner)
    def get_group(self: Any, filename: str) -> Any:
        found = inner(self, filename)
        if found:
            return found
        return _beside(self.cache_dir, "__grp__" + filename) or found

    manager.get_group = get_group
    return True


def settle_ptxas(compile_tasks: ModuleType) -> bool:
    """Let this process use one ``ptxas`` from its first kernel on; return whether that was needed.

    ``compile_tasks`` is torch._inductor.runtime.compile_tasks. torch sets ``TRITON_PTXAS_PATH`` to
    its own ``ptxas`` only when it first compiles a kernel in this process, while Triton asks for
    the version once and keeps it in the key of each kernel. So the key depends on what came first,
    and a start misses kernels that the build has compiled.
    """
    settle = getattr(compile_tasks, "_set_triton_ptxas_path", None)
    if settle is None or "TRITON_PTXAS_PATH" in os.environ:
        return False
    settle()
    return "TRITON_PTXAS_PATH" in os.environ


def _move(autotuner: Any) -> None:
    """Let an autotuner that was read from a graph entry name its files where they are now."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    here = _present_path(autotuner.filename, cache_dir())
    if here is None or here == autotuner.filename:
        return
    autotuner.filename = here
    cache: Any = getattr(getattr(autotuner, "save_cache_hook", None), "__self__", None)
    local = getattr(cache, "local_cache", None)
    if local is not None:
        backend, path = local
        place = os.path.join(os.path.dirname(here), os.path.basename(path))
        cache.local_cache = (backend, place)


def _present_path(recorded: str | None, cache_dir: str) -> str | None:
    """Return where a kernel's source lies in ``cache_dir``, or None where it was no cached file.

    torch keeps a source named ``cabcdef….py`` in the folder ``ab`` (codecache.py, ``get_path``).
    """
    if not recorded:
        return None
    folder, name = os.path.split(recorded)
    if os.path.basename(folder) != name[1:3]:
        return None
    return os.path.join(cache_dir, name[1:3], name)


def _beside(folder: str | None, group: str) -> dict[str, str]:
    """Return the artifacts that a group file lists, as far as they lie beside it."""
    if not folder:
        return {}
    try:
        with open(os.path.join(folder, group), encoding="utf-8") as file:
            children = json.load(file)["child_paths"]
        paths = {
            name: os.path.join(folder, os.path.basename(path)) for name, path in children.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {name: path for name, path in paths.items() if os.path.exists(path)}
