"""The part of ``upstream.py`` that reads what a graph was made from: a frame and its surroundings.

Owns which graph an event belongs to, which facts there are and where Dynamo keeps them. Each fact
answers to a field of a declaration, so that a server's graph can be held against a proven one. Only
looks: nothing is evaluated on fake tensors, since that would add guards.

Seen: torch 2.13.0 by test; 2.9.1 and 2.14.1 by reading.
"""

from __future__ import annotations

import itertools
import os
import threading
import time

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import CodeType
    from typing import Any

    from .events import EventLog
    from .points import Function
    from .watch import Tally

    Facts = dict[str, Any]

#: Examples of each kind that one graph carries, so that its event stays small.
_KEPT = 16

#: Compiled in place of a module whose ``forward`` is torch's own: ``inner`` there calls ``fn``.
_WRAPPER = os.path.join("torch", "_dynamo", "external_utils.py")


class _Thread(threading.local):
    """What this thread is in the middle of."""

    frame: dict[str, Any] | None = None
    graph: int | None = None
    benchmarks = 0
    descents = 0
    aot_reason: str | None = None


thread = _Thread()
_graph_numbers = itertools.count(1)


def watch_graph(inner: Function, log: EventLog, tally: Tally) -> Function:
    """Watch the entry of Inductor's backend: it gets each graph of Dynamo, also on a hit."""

    def compile_fx(model_: Any, example_inputs_: Any, *args: Any, **kwargs: Any) -> Any:
        if thread.graph is not None:  # it calls itself
            return inner(model_, example_inputs_, *args, **kwargs)
        failed = None
        number = next(_graph_numbers)
        started_s = time.monotonic()
        facts = _facts(model_, example_inputs_, kwargs.get("config_patches"))
        log.write("graph", graph=number, compile_id=_compile_id(), **facts)
        thread.graph = number
        try:
            return inner(model_, example_inputs_, *args, **kwargs)
        except BaseException as error:
            failed = type(error).__name__
            raise
        finally:
            thread.graph = None
            seconds = round(time.monotonic() - started_s, 3)
            log.write("graph_done", graph=number, seconds=seconds, failed=failed)

    return compile_fx


def _facts(model_: Any, examples: Any, patches: Any) -> dict[str, Any]:
    facts = dict(thread.frame or {})
    try:
        facts.update(graph_facts(model_, examples, patches))
    except Exception as error:  # a graph of another kind is compiled all the same
        facts["unread"] = short("%s: %s" % (type(error).__name__, error))
    return facts


def _compile_id() -> str | None:
    try:
        from torch._guards import CompileContext

        compile_id = CompileContext.current_compile_id()
    except Exception:  # renamed: then a backward graph stands alone in the report
        return None
    return None if compile_id is None else str(compile_id)


def within() -> dict[str, Any]:
    """Say which graph an event belongs to: a backward graph is compiled long after its forward."""
    if thread.graph is not None:
        return {"graph": thread.graph}
    return {"graph": None, "compile_id": _compile_id()}


def short(value: object) -> str | None:
    """Return a text in one line of at most 300 characters, None as it is."""
    return None if value is None else " ".join(str(value).split())[:300]


def frame_facts(code: CodeType, frame_locals: Mapping[str, Any]) -> Facts:
    """Return what is compiled and the modes that stand around it, as torch is about to trace it."""
    import torch

    owner = frame_locals.get("self")
    if code.co_filename.endswith(_WRAPPER):
        owner = frame_locals.get("fn")
    autocast = ""
    for device in ("cuda", "cpu"):
        if not autocast and torch.is_autocast_enabled(device):
            autocast = _dtype(torch.get_autocast_dtype(device))
    grad = "grad" if torch.is_grad_enabled() else "no_grad"
    return {
        "frame": {
            "name": code.co_name,
            "of": None if owner is None else getattr(owner, "__name__", type(owner).__name__),
            "file": os.path.basename(code.co_filename),
            "line": code.co_firstlineno,
        },
        # Inference mode is switched off while a frame is traced, so it is read before.
        "grad": "inference" if torch.is_inference_mode_enabled() else grad,
        "autocast": autocast,
    }


def graph_facts(
    graph_module: Any, examples: Sequence[Any], patches: Mapping[str, Any] | None
) -> Facts:
    """Return the facts of a graph that Dynamo hands to Inductor with these settings."""
    import torch

    inputs: list[Facts] = []
    tensors: list[tuple[str, Any]] = []
    placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    for node, example in zip(placeholders, examples):  # noqa: B905  # 3.10 has it, 2.9's may differ
        if not isinstance(example, torch.Tensor):
            continue
        name, is_own = _source(node, example)
        if is_own:
            tensors.append((name, example))
        else:
            inputs.append(_input(name, example, node.meta.get("example_value")))
    tensors += list(graph_module.named_parameters()) + list(graph_module.named_buffers())
    return {
        "inputs": inputs[:_KEPT],
        "parameters": _parameters(tensors),
        "mode": _mode(patches or {}),
        "dynamic": _dynamic(),
        "config": _config(),
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
    }


def _source(node: Any, example: Any) -> tuple[str, bool]:
    """Return how the traced code reaches an input, and whether it belongs to a module.

    Dynamo makes parameters, buffers and other tensors of modules inputs of the graph, and marks
    them as static where they are read.
    """
    import torch

    source = getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", None)
    name = str(name() if callable(name) else name or node.name)  # a method up to 2.9
    is_own = isinstance(example, torch.nn.Parameter) or bool(
        (node.meta.get("tensor_dict") or {}).get("_dynamo_static_input_type")
    )
    if name.startswith("L['") and name.endswith("']") and name.count("[") == 1:
        name = name[3:-2]
    return name, is_own


def _input(name: str, example: Any, traced: Any) -> Facts:
    sizes = [int(size) for size in example.shape] if _is_static(example.shape) else None
    shape = [
        size if type(size) is int else str(size)
        for size in (example.shape if traced is None else traced.shape)
    ]
    facts: Facts = {"name": name, "dtype": _dtype(example.dtype), "shape": shape}
    if sizes is not None and sizes != shape:
        facts["sizes"] = sizes
    if sizes is not None and example.layout == _strided() and _is_static(example.stride()):
        strides = [int(stride) for stride in example.stride()]
        if not _is_contiguous(sizes, strides):
            facts["strides"] = strides
    if example.requires_grad:
        facts["requires_grad"] = True
    if example.device.type != "cpu":
        facts["device"] = str(example.device)
    return facts


def _strided() -> Any:
    import torch

    return torch.strided


def _is_static(sizes: Sequence[Any]) -> bool:
    return all(type(size) is int for size in sizes)


def _is_contiguous(sizes: list[int], strides: list[int]) -> bool:
    expected = 1
    for size, stride in zip(reversed(sizes), reversed(strides)):  # noqa: B905  # both of one tensor
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _parameters(tensors: list[tuple[str, Any]]) -> Facts:
    import torch

    found = [tensor for _, tensor in tensors if isinstance(tensor, torch.nn.Parameter)]
    dtypes: dict[str, int] = {}
    for tensor in found:
        dtypes[_dtype(tensor.dtype)] = dtypes.get(_dtype(tensor.dtype), 0) + 1
    return {
        "count": len(found),
        "elements": sum(tensor.numel() for tensor in found),
        "dtypes": dtypes,
        "requires_grad": sum(1 for tensor in found if tensor.requires_grad),
        "other": len(tensors) - len(found),
    }


def _mode(patches: Mapping[str, Any]) -> str:
    """Name the mode as its user writes it, and what was set beside it."""
    from torch._inductor import list_mode_options

    name = "default"
    options: Mapping[str, Any] = {}
    for other, others_options in list_mode_options().items():
        if others_options.items() <= patches.items() and len(others_options) > len(options):
            name, options = str(other), others_options
    rest = ["%s=%s" % (key, patches[key]) for key in sorted(patches.keys() - options.keys())]
    return name + (" with " + ", ".join(rest[:_KEPT]) if rest else "")


def _dynamic() -> str:
    """Return what was given as ``dynamic``: it is set in Dynamo's settings around each call."""
    import torch._dynamo.config as dynamo

    if not dynamo.assume_static_by_default:
        return "true"
    return "auto" if dynamo.automatic_dynamic_shapes else "false"


def _config() -> dict[str, str] | None:
    """Return Inductor's settings that differ from their defaults; None where that is not told."""
    import torch
    import torch._inductor.config as inductor

    entries = getattr(inductor, "_config", None)
    told = getattr(inductor, "_get_dict", None)
    if entries is None or told is None:
        return None
    ignored = tuple(getattr(inductor, "_cache_config_ignore_prefix", ()))
    found: dict[str, str] = {}
    for name, value in sorted(told(skip_default=True).items()):
        default = getattr(entries.get(name), "default", value)
        if not name.startswith(ignored) and value != default and len(found) < _KEPT:
            found[name] = str(value)[:80]
    if found.get("deterministic") == str(torch.are_deterministic_algorithms_enabled()):
        del found["deterministic"]  # it follows from torch's own, which is a fact of its own
    return found


def _dtype(dtype: Any) -> str:
    return str(dtype).replace("torch.", "")
