"""All knowledge of torch's and Triton's inside: where the watcher looks, in which versions.

Each ``Point`` (``points.py``) names one attribute of one upstream module and how it is wrapped. A
point is installed when its module is imported; if it is not there, its field of the start report
becomes ``null``. What is read from a graph stands in ``upstream_graphs.py``, what is mended in
``upstream_mends.py``.

torch's own counters are not used for what was compiled: on a hit they replay the build's counts
(``counters["inductor"] += graph.counter_deltas`` in torch/_inductor/codecache.py, 2.9 to 2.14).

Seen: torch 2.13.0 (CPU) by reading and by tests; 2.9.1 and 2.14.1 by reading, each point looked up
in their sources; torch 2.11.0 with triton 3.6.0 by cold and warm starts on an H200.
"""

from __future__ import annotations

import os
import time

from .points import Point
from .turn import Alone
from .upstream_graphs import frame_facts, short, thread, watch_graph, within

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from typing import Any

    from .events import EventLog
    from .points import Function
    from .watch import Tally


def _graph_compiled(inner: Function, log: EventLog, tally: Tally) -> Function:
    def fx_codegen_and_compile(*args: Any, **kwargs: Any) -> Any:
        started_s = time.monotonic()
        tally.add("graphs_compiled")
        try:
            return inner(*args, **kwargs)
        finally:
            seconds = round(time.monotonic() - started_s, 3)
            log.write("graph_compiled", seconds=seconds, **within())

    return fx_codegen_and_compile


def _fx_key(inner: Function, log: EventLog, tally: Tally) -> Function:
    def prepare_key(*args: Any, **kwargs: Any) -> Any:
        answer = inner(*args, **kwargs)
        info = answer[1] if isinstance(answer, tuple) and len(answer) > 1 else None
        if isinstance(info, dict) and info.get("cache_state") == "bypass":
            reason = short(info.get("cache_bypass_reason"))
            log.write("fx_bypass", reason=reason, **within())
        return answer

    return prepare_key


def _fx_lookup(inner: Function, log: EventLog, tally: Tally) -> Function:
    def load_with_key(*args: Any, **kwargs: Any) -> Any:
        answer = inner(*args, **kwargs)
        info = answer[1] if isinstance(answer, tuple) and len(answer) > 1 else None
        state = info.get("cache_state") if isinstance(info, dict) else None
        log.write("fx_lookup", state=state, **within())
        return answer

    return load_with_key


def _aot_key(inner: Function, log: EventLog, tally: Tally) -> Function:
    def autograd_cache_key(*args: Any, **kwargs: Any) -> Any:
        try:
            return inner(*args, **kwargs)
        except Exception as error:
            thread.aot_reason = short(error)
            raise

    return autograd_cache_key


def _aot_counts() -> dict[str, int]:
    try:
        from torch._dynamo.utils import counters

        counts = counters["aot_autograd"]
        return {name: counts.get("autograd_cache_" + name, 0) for name in ("hit", "miss", "bypass")}
    except Exception:  # then the lookup's state is null
        return {}


def _aot_lookup(inner: Function, log: EventLog, tally: Tally) -> Function:
    def try_load(*args: Any, **kwargs: Any) -> Any:
        thread.aot_reason = None
        before = _aot_counts()
        try:
            return inner(*args, **kwargs)
        finally:
            states = [name for name, count in _aot_counts().items() if count > before.get(name, 0)]
            state = states[0] if states else None
            log.write("aot_lookup", state=state, reason=thread.aot_reason, **within())

    return try_load


def _aot_save(inner: Function, log: EventLog, tally: Tally) -> Function:
    def _handle_save_error(error: Any, *args: Any, **kwargs: Any) -> Any:
        log.write("aot_lookup", state="bypass", reason=short(error), **within())
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
    """Count one run for a candidate, however many of these functions it passes.

    In a build nothing else runs on the device meanwhile.
    """

    def benchmark(*args: Any, **kwargs: Any) -> Any:
        if thread.benchmarks:
            return inner(*args, **kwargs)
        by = "coordinate descent" if thread.descents else "autotuning"
        log.write("benchmarked", by=by)
        thread.benchmarks += 1
        try:
            with Alone():
                return inner(*args, **kwargs)
        finally:
            thread.benchmarks -= 1

    return benchmark


def _descent(inner: Function, log: EventLog, tally: Tally) -> Function:
    def coordinate_descent_tuning(self: Any, *args: Any, **kwargs: Any) -> Any:
        thread.descents += 1
        try:
            return inner(self, *args, **kwargs)
        finally:
            thread.descents -= 1

    return coordinate_descent_tuning


def _frame(inner: Function, log: EventLog, tally: Tally) -> Function:
    def _compile(
        code: Any, frame_globals: Any, frame_locals: Any, *args: Any, **kwargs: Any
    ) -> Any:
        started_s = time.monotonic()
        outer, failed = thread.frame, None
        log.hint("frame_begins")
        try:
            thread.frame = frame_facts(code, frame_locals)
        except Exception:  # a frame that cannot be described is compiled all the same
            thread.frame = None
        try:
            return inner(code, frame_globals, frame_locals, *args, **kwargs)
        except BaseException as error:
            failed = type(error).__name__
            raise
        finally:
            thread.frame = outer
            compile_id = kwargs.get("compile_id")
            tally.add("frames")
            log.write(
                "frame",
                id=str(compile_id),
                again=bool(getattr(compile_id, "frame_compile_id", None)),
                name=getattr(code, "co_name", None),
                error=failed,
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
    seen: set[tuple[int, Any]] = set()

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        tally.add("graph_runs")
        answer = inner(self, *args, **kwargs)
        pid = os.getpid()
        for index in getattr(self, "device_idxs", None) or (None,):  # empty on a CPU
            if (pid, index) not in seen:
                seen.add((pid, index))
                log.write("ran", device_index=index)
        return answer

    return __call__


_ALL = "2.9.1 and 2.14.1 by reading, 2.11.0 by starts on a GPU, 2.13.0 by test"
_NEW = "2.13.0 and 2.14.1 by reading; not 2.9.1"
_GPU = "2.9.1, 2.13.0 and 2.14.1 by reading, 2.11.0 by starts on a GPU"
_FX, _GRAPHS = "torch._inductor.codecache", "torch._inductor.compile_fx"
_AOT = "torch._functorch._aot_autograd.autograd_cache"
_FRAMES, _CODE = "torch._dynamo.convert_frame", "torch._inductor.output_code"
_CHOICES = "torch._inductor.select_algorithm"
_HEURISTICS = "torch._inductor.runtime.triton_heuristics"
_CLOCKS = "torch._inductor.runtime.benchmarking"
_COLLECTIVES = "torch._inductor.fx_passes.node_runtime_estimation"

POINTS = (
    Point(_GRAPHS, "compile_fx", "graphs", watch_graph, _ALL),
    Point(_GRAPHS, "fx_codegen_and_compile", "graphs_compiled", _graph_compiled, _ALL),
    Point(_FX, "FxGraphCache.prepare_key", "graphs_bypassed", _fx_key, _ALL),
    Point(_FX, "FxGraphCache.load_with_key", "fx_misses", _fx_lookup, _ALL),
    Point(_AOT, "autograd_cache_key", "bypass_reasons", _aot_key, _ALL),
    Point(_AOT, "AOTAutogradCache.try_load", "aot_misses", _aot_lookup, _ALL),
    # After a miss only, which is counted; 2.9.1 has no such function.
    Point(_AOT, "AOTAutogradCache._handle_save_error", None, _aot_save, _NEW),
    # Of each build, in whichever thread or worker process; ahead-of-time objects too.
    Point("torch._inductor.cpp_builder", "CppBuilder.build", "cpp_compiled", _cpp_built, _ALL),
    Point(
        "triton.compiler.compiler",
        "ASTSource.make_ir",
        "triton_compiled",
        _triton_compiled,
        "triton 3.6.0 by starts on a GPU",
    ),
    Point(_HEURISTICS, "CachingAutotuner.bench", "benchmarked", _benchmarked, _GPU),
    Point(_HEURISTICS, "CachingAutotuner.coordinate_descent_tuning", "descents", _descent, _GPU),
    Point(_CHOICES, "AlgorithmSelectorCache.benchmark_choice", "benchmarked", _benchmarked, _GPU),
    # Every other timing (padding, fused nodes, subgraphs, C++ templates, in whichever process)
    # ends in one of these clocks.
    Point(_CLOCKS, "Benchmarker.benchmark_cpu", "benchmarked", _benchmarked, _ALL),
    Point(_CLOCKS, "TritonBenchmarker.benchmark_gpu", "benchmarked", _benchmarked, _GPU),
    Point(_CLOCKS, "InductorBenchmarker.benchmark_gpu", "benchmarked", _benchmarked, _GPU),
    Point("torch._inductor.utils", "do_bench_using_profiling", "benchmarked", _benchmarked, _GPU),
    # Newer clocks of their own.
    Point(_CLOCKS, "TorchProfilerBenchmarker.benchmark_gpu", None, _benchmarked, _NEW),
    Point(_CHOICES, "AlgorithmSelectorCache.benchmark_collective_choice", None, _benchmarked, _NEW),
    Point(_COLLECTIVES, "benchmark_collective_with_cuda_events", None, _benchmarked, _NEW),
    Point(_FRAMES, "_compile", "recompiles", _frame, _ALL),
    Point(_FRAMES, "exceeds_recompile_limit", "limits_hit", _limit, _ALL),
    Point(_CODE, "CompiledFxGraph.__call__", "graph_runs", _graph_run, _ALL),
)
