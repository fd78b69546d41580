"""All knowledge of torch's and Triton's inside: where the watcher looks, in which versions.

Each ``Point`` names one attribute of one upstream module and how it is wrapped. A point is
installed when its module is imported; if the attribute is not there (another release, renamed), the
point stays out, and every field of the start report that needs it becomes ``null``: "cannot tell"
is never 0.

torch's own counters are not used for what was compiled: on a hit they replay the build's counts
(``counters["inductor"] += graph.counter_deltas`` in torch/_inductor/codecache.py, 2.9 to 2.14).

Seen: torch 2.13.0 (CPU) by reading and by tests; torch 2.11.0 and triton 3.6.0 from figures.md's
runs.
"""

from __future__ import annotations

import functools
import threading
import time

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from .events import EventLog
    from .watch import Tally

    Function = Callable[..., Any]
    Maker = Callable[[Function, EventLog, Tally], Function]

_state = threading.local()


class Point:
    """One watched attribute: module, dotted attribute, report field, and the wrapper's maker."""

    def __init__(
        self, module: str, attribute: str, field: str | None, make: Maker, seen: str
    ) -> None:
        self.module = module
        self.attribute = attribute
        self.field = field
        self.make = make
        self.seen = seen


def _replace(owner: Any, name: str, make: Callable[[Function], Function]) -> None:
    """Wrap ``owner.name`` in place, keeping static and class methods what they are."""
    raw = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    kind = type(raw) if isinstance(raw, (staticmethod, classmethod)) else None
    inner = raw.__func__ if kind else raw
    wrapped = functools.wraps(inner)(make(inner))
    setattr(owner, name, kind(wrapped) if kind else wrapped)


def install(point: Point, module: ModuleType, log: EventLog, tally: Tally) -> bool:
    """Wrap a point's attribute in its freshly imported module; return whether it was there."""
    owner: Any = module
    *parents, name = point.attribute.split(".")
    for parent in parents:
        owner = getattr(owner, parent, None)
        if owner is None:
            return False
    if name not in (owner.__dict__ if isinstance(owner, type) else vars(owner)):
        return False
    _replace(owner, name, lambda inner: point.make(inner, log, tally))
    return True


def _graph_compiled(inner: Function, log: EventLog, tally: Tally) -> Function:
    def fx_codegen_and_compile(*args: Any, **kwargs: Any) -> Any:
        started_s = time.monotonic()
        tally.add("graphs_compiled")
        try:
            return inner(*args, **kwargs)
        finally:
            log.write("graph_compiled", seconds=round(time.monotonic() - started_s, 3))

    return fx_codegen_and_compile


def _fx_key(inner: Function, log: EventLog, tally: Tally) -> Function:
    def prepare_key(*args: Any, **kwargs: Any) -> Any:
        answer = inner(*args, **kwargs)
        info = answer[1] if isinstance(answer, tuple) and len(answer) > 1 else None
        if isinstance(info, dict) and info.get("cache_state") == "bypass":
            log.write("fx_bypass", reason=_short(info.get("cache_bypass_reason")))
        return answer

    return prepare_key


def _fx_lookup(inner: Function, log: EventLog, tally: Tally) -> Function:
    def load_with_key(*args: Any, **kwargs: Any) -> Any:
        answer = inner(*args, **kwargs)
        info = answer[1] if isinstance(answer, tuple) and len(answer) > 1 else {}
        log.write("fx_lookup", state=info.get("cache_state"), key=info.get("key"))
        return answer

    return load_with_key


def _aot_key(inner: Function, log: EventLog, tally: Tally) -> Function:
    def autograd_cache_key(*args: Any, **kwargs: Any) -> Any:
        try:
            return inner(*args, **kwargs)
        except Exception as error:
            _state.aot_reason = _short(error)
            raise

    return autograd_cache_key


def _aot_counts() -> dict[str, int]:
    from torch._dynamo.utils import counters

    counts = counters["aot_autograd"]
    names = ("hit", "miss", "bypass")
    return {name: counts.get("autograd_cache_" + name, 0) for name in names}


def _aot_lookup(inner: Function, log: EventLog, tally: Tally) -> Function:
    def try_load(*args: Any, **kwargs: Any) -> Any:
        _state.aot_reason = None
        before = _aot_counts()
        try:
            return inner(*args, **kwargs)
        finally:
            after = _aot_counts()
            states = [name for name in after if after[name] > before[name]]
            log.write("aot_lookup", state=states[0] if states else None, reason=_state.aot_reason)

    return try_load


def _aot_save(inner: Function, log: EventLog, tally: Tally) -> Function:
    def _handle_save_error(error: Any, *args: Any, **kwargs: Any) -> Any:
        log.write("aot_lookup", state="bypass", reason=_short(error))
        return inner(error, *args, **kwargs)

    return _handle_save_error


def _cpp_built(inner: Function, log: EventLog, tally: Tally) -> Function:
    def build(self: Any, *args: Any, **kwargs: Any) -> Any:
        tally.add("cpp_compiled")
        log.write("cpp_compiled")
        return inner(self, *args, **kwargs)

    return build


def _triton_compiled(inner: Function, log: EventLog, tally: Tally) -> Function:
    def make_ir(self: Any, *args: Any, **kwargs: Any) -> Any:
        tally.add("triton_compiled")
        log.write("triton_compiled", kernel=getattr(self, "name", None))
        return inner(self, *args, **kwargs)

    return make_ir


def _benchmarked(inner: Function, log: EventLog, tally: Tally) -> Function:
    def bench(self: Any, *args: Any, **kwargs: Any) -> Any:
        log.write("benchmarked", by="coordinate descent" if _in_descent() else "autotuning")
        return inner(self, *args, **kwargs)

    return bench


def _in_descent() -> bool:
    return int(getattr(_state, "descent", 0)) > 0


def _descent(inner: Function, log: EventLog, tally: Tally) -> Function:
    def coordinate_descent_tuning(self: Any, *args: Any, **kwargs: Any) -> Any:
        _state.descent = getattr(_state, "descent", 0) + 1
        try:
            return inner(self, *args, **kwargs)
        finally:
            _state.descent -= 1

    return coordinate_descent_tuning


def _choice(inner: Function, log: EventLog, tally: Tally) -> Function:
    def benchmark_choice(*args: Any, **kwargs: Any) -> Any:
        log.write("benchmarked", by="autotuning")
        return inner(*args, **kwargs)

    return benchmark_choice


def _frame(inner: Function, log: EventLog, tally: Tally) -> Function:
    def _compile(*args: Any, **kwargs: Any) -> Any:
        started_s = time.monotonic()
        code = args[0] if args else None
        error_name = None
        try:
            return inner(*args, **kwargs)
        except BaseException as error:
            error_name = type(error).__name__
            raise
        finally:
            compile_id = kwargs.get("compile_id")
            number = getattr(compile_id, "frame_compile_id", None)
            tally.add("frames")
            log.write(
                "frame",
                id=str(compile_id),
                again=bool(number),
                name=getattr(code, "co_name", None),
                error=error_name,
                seconds=round(time.monotonic() - started_s, 3),
            )

    return _compile


def _limit(inner: Function, log: EventLog, tally: Tally) -> Function:
    def exceeds_recompile_limit(*args: Any, **kwargs: Any) -> Any:
        answer = inner(*args, **kwargs)
        if isinstance(answer, tuple) and answer and answer[0]:
            log.write("limit", which=answer[1])
        return answer

    return exceeds_recompile_limit


def _graph_run(inner: Function, log: EventLog, tally: Tally) -> Function:
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        tally.add("graph_runs")
        return inner(self, *args, **kwargs)

    return __call__


_ALL = "2.9-2.14 by reading, 2.13 by test"
_CODECACHE = "torch._inductor.codecache"
_HEURISTICS = "torch._inductor.runtime.triton_heuristics"
_AOT = "torch._functorch._aot_autograd.autograd_cache"
_ALGORITHM = "torch._inductor.select_algorithm"

POINTS = (
    Point(
        "torch._inductor.compile_fx",
        "fx_codegen_and_compile",
        "graphs_compiled",
        _graph_compiled,
        _ALL,
    ),
    Point(_CODECACHE, "FxGraphCache.prepare_key", "graphs_bypassed", _fx_key, _ALL),
    Point(_CODECACHE, "FxGraphCache.load_with_key", "fx_misses", _fx_lookup, _ALL),
    Point(_AOT, "autograd_cache_key", None, _aot_key, _ALL),  # only the reason of a bypass
    Point(_AOT, "AOTAutogradCache.try_load", "aot_misses", _aot_lookup, _ALL),
    Point(_AOT, "AOTAutogradCache._handle_save_error", None, _aot_save, "2.13"),
    Point("torch._inductor.cpp_builder", "CppBuilder.build", "cpp_compiled", _cpp_built, _ALL),
    Point(
        "triton.compiler.compiler",
        "ASTSource.make_ir",
        "triton_compiled",
        _triton_compiled,
        "triton 3.x",
    ),
    Point(_HEURISTICS, "CachingAutotuner.bench", "benchmarked", _benchmarked, _ALL),
    Point(_HEURISTICS, "CachingAutotuner.coordinate_descent_tuning", None, _descent, _ALL),
    Point(_ALGORITHM, "AlgorithmSelectorCache.benchmark_choice", "benchmarked", _choice, _ALL),
    Point("torch._dynamo.convert_frame", "_compile", "recompiles", _frame, _ALL),
    Point(
        "torch._dynamo.convert_frame", "exceeds_recompile_limit", "limits_hit", _limit, "2.9-2.14"
    ),
    Point(
        "torch._inductor.output_code", "CompiledFxGraph.__call__", "graph_runs", _graph_run, _ALL
    ),
)


def _short(value: object) -> str | None:
    return None if value is None else " ".join(str(value).split())[:300]
