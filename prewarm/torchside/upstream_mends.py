"""The second half of ``upstream.py``: faults of torch that the shim mends, and how.

Owns what is changed inside torch; which deployment needs it is ``mends.py``'s.
Seen: torch 2.11.0 (H200) and 2.13.0 (CPU), by reading and by test; 2.9.1 and 2.14.1 (CPU) by test.
"""

from __future__ import annotations

import functools
import logging
import os

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any


def raise_recompile_limit(config: ModuleType, limit: int) -> bool:
    """Let torch keep more than its 8 graphs of one piece of code; return whether it kept fewer.

    ``config`` is torch._dynamo.config. Beyond ``recompile_limit`` a frame runs in eager mode with
    one log line (TensorRT-LLM #6142); ``accumulated_recompile_limit`` (256) holds for the code over
    all its objects. No variable sets either (2.9 to 2.14).
    """
    raised = False
    for name in ("recompile_limit", "accumulated_recompile_limit"):
        present = getattr(config, name, None)
        if isinstance(present, int) and present < limit:
            setattr(config, name, limit)
            raised = True
    return raised


def precompiles_headers(config: ModuleType) -> bool:
    """Tell whether torch precompiles headers against the variable that says not to.

    ``config`` is torch._inductor.config. Up to 2.12 no variable reaches this setting. A precompiled
    header lies in the user's default directory, is preprocessed by g++ at each start, and its path
    is part of each C++ kernel's key, so that another user compiles all of them again.
    """
    asked = os.environ.get("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS")
    return asked == "0" and getattr(config, "cpp_cache_precompile_headers", None) is True


def leave_headers_alone(config: ModuleType) -> bool:
    """Let torch compile without precompiled headers; return whether this release needed it."""
    if not precompiles_headers(config):
        return False
    config.cpp_cache_precompile_headers = False  # type: ignore[attr-defined]
    return True


def keep_tuned_configs(heuristics: ModuleType) -> bool:
    """Let a kernel from the graph cache take the configuration that was tuned for it.

    ``heuristics`` is torch._inductor.runtime.triton_heuristics. Up to torch 2.12
    ``recheck_autotune_cache`` passes over kernels with one candidate and forgets that a candidate
    was found by coordinate descent, so that each start tunes again (pytorch #172819, mended by
    #173391). Returns False where that is mended or where nothing is as expected.
    """
    autotuner = getattr(heuristics, "CachingAutotuner", None)
    recheck = getattr(autotuner, "recheck_autotune_cache", None)
    if autotuner is None or recheck is None:
        return False
    needed = ("check_autotune_cache", "triton_config_to_hashable")
    if not all(hasattr(heuristics, name) for name in needed):
        return False
    # The mended function asks with getattr(…, "found_by_coordesc", …), the other one does not.
    if "found_by_coordesc" in recheck.__code__.co_consts:
        return False
    autotuner.recheck_autotune_cache = _with_tuned_config(recheck, heuristics)
    return True


def _with_tuned_config(recheck: Callable[..., Any], heuristics: ModuleType) -> Callable[..., Any]:
    @functools.wraps(recheck)
    def recheck_autotune_cache(self: Any, reload_kernel_from_src: Callable[[], Any]) -> Any:
        found = _tuned_config(self, heuristics)
        if found is None:
            return recheck(self, reload_kernel_from_src)
        name_of = heuristics.triton_config_to_hashable
        for result in self.compile_results:
            if name_of(result.config) == name_of(found):
                result.config.found_by_coordesc = True
                self.compile_results = [result]
                return None
        # The tuned configuration was not among those that were saved: only this one is compiled.
        if self.fn.fn is None:
            self.fn = reload_kernel_from_src().fn
        self.compile_results = [self._precompile_config(found)]
        return None

    return recheck_autotune_cache


def _tuned_config(autotuner: Any, heuristics: ModuleType) -> Any:
    """Return the configuration that coordinate descent found for this kernel, if one is kept."""
    configs = [result.config for result in autotuner.compile_results]
    kept, _, info = heuristics.check_autotune_cache(
        configs, autotuner.filename, autotuner.inductor_meta
    )
    autotuner.autotune_cache_info = info
    tuned = len(kept) == 1 and getattr(kept[0], "found_by_coordesc", False)
    return kept[0] if tuned else None


def skip_guard_timing(guards: ModuleType) -> bool:
    """Leave out the timing of each frame's guards, which flushes the processor's caches first.

    ``guards`` is torch._dynamo.guards. The figure goes to a debug log and a metric; with that log
    switched on it is taken.
    """
    inner: Any = getattr(guards, "profile_guard_manager", None)
    log = getattr(guards, "guards_log", None)
    if inner is None or not isinstance(log, logging.Logger):
        return False

    @functools.wraps(inner)
    def profile_guard_manager(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs) if log.isEnabledFor(logging.DEBUG) else 0.0

    guards.profile_guard_manager = profile_guard_manager  # type: ignore[attr-defined]
    return True


def skip_trace_names(symbolic_convert: ModuleType) -> bool:
    """Name a traced function only where that is logged: torch tokenizes its whole file for it.

    ``symbolic_convert`` is torch._dynamo.symbolic_convert; its headers of traced lines are made for
    each call and used by debug logs alone (2.9 to 2.14).
    """
    inner: Any = getattr(symbolic_convert, "get_funcname", None)
    names = ("trace_call_log", "trace_source_log")
    logs = [getattr(symbolic_convert, name, None) for name in names]
    if inner is None or not all(isinstance(log, logging.Logger) for log in logs):
        return False

    @functools.wraps(inner)
    def get_funcname(filename: str, lineno: int) -> Any:
        if any(log is not None and log.isEnabledFor(logging.DEBUG) for log in logs):
            return inner(filename, lineno)
        return None

    symbolic_convert.get_funcname = get_funcname  # type: ignore[attr-defined]
    return True


class _LateTemplate:
    """A kernel's template that is compiled when it is first used."""

    def __init__(self, compile_it: Callable[[], Any]) -> None:
        self._compile_it: Callable[[], Any] | None = compile_it
        self._compiled: Any = None

    def __getattr__(self, name: str) -> Any:
        if self._compile_it is not None:
            self._compiled = self._compile_it()
            self._compile_it = None
        return getattr(self._compiled, name)


def compile_templates_late(common: ModuleType) -> bool:
    """Compile the templates of kernels when a kernel is made from them, not when they are imported.

    ``common`` is torch._inductor.codegen.common, whose ``KernelTemplate`` gives some twenty sources
    to jinja2 while Inductor is imported; a start that finds its graphs makes no kernel.
    """
    templates: Any = getattr(common, "KernelTemplate", None)
    inner = getattr(templates, "_template_from_string", None)
    engine = getattr(common, "jinja2_env", None)
    if inner is None or engine is None or inner.__code__.co_varnames[:1] != ("source",):
        return False

    @functools.wraps(inner)
    def _template_from_string(source: str) -> Any:
        # Without jinja2 there is no template at all, and torch looks for that.
        return inner(source) if engine() is None else _LateTemplate(lambda: inner(source))

    templates._template_from_string = staticmethod(_template_from_string)
    return True
