"""A start with torch alone: a module from a source file, compiled and called, and what torch did.

Usage: ``alone.py JSON`` with ``path``, ``factory`` (module:name) and ``calls`` (one list of shapes
per call). Optional: ``dynamic``, ``mode``, ``fullgraph``; ``times`` (an argument of each call);
``before`` (Python that runs before the module is made); ``around`` (an expression that makes a
context); ``mark`` (the first dimension is dynamic); ``weights`` (a state dictionary to load);
``how`` it is compiled ("call": the module, "method": ``m.compile()``, "forward": the method in
its place). Prints one JSON line. Compilers are heard by an audit hook of its own, so that nothing
here relies on prewarm's watcher.
"""

import contextlib
import importlib
import json
import os
import sys

compilers = 0


def _heard(event: str, args: tuple) -> None:
    global compilers
    if event == "subprocess.Popen":
        argv = args[1].split() if isinstance(args[1], str) else [str(word) for word in args[1]]
        compiles = "-o" in argv and "-E" not in argv
        compilers += compiles and os.path.basename(argv[0]) in ("g++", "c++", "gcc", "clang++")


sys.addaudithook(_heard)

import torch  # noqa: E402


def _compiled(model: torch.nn.Module, how: str, options: dict) -> tuple:
    """Return what the server calls, and the same without compiling."""
    eager = model.forward
    if how == "method":
        model.compile(**options)
    elif how == "forward":
        model.forward = torch.compile(model.forward, **options)
    else:
        return torch.compile(model, **options), model
    return model, eager


def main() -> None:
    asked = json.loads(sys.argv[1])
    sys.path.insert(0, asked["path"])
    exec(asked.get("before", ""), {"torch": torch})
    module, _, name = asked["factory"].partition(":")
    model = getattr(importlib.import_module(module), name)().eval()
    if "weights" in asked:
        model.load_state_dict(torch.load(asked["weights"], weights_only=True))
    options = {name: asked[name] for name in ("dynamic", "mode", "fullgraph") if name in asked}
    compiled, eager = _compiled(model, asked.get("how", "call"), options)
    failed, wrong = None, 0
    around = eval(asked["around"], {"torch": torch}) if "around" in asked else None
    with torch.inference_mode(), around or contextlib.nullcontext():
        for number, shapes in enumerate(asked["calls"]):
            inputs = [torch.randn(shape) for shape in shapes]
            if asked.get("mark"):
                for tensor in inputs:
                    if tensor.shape[0] > 1:
                        torch._dynamo.mark_dynamic(tensor, 0)
            more = {"times": asked["times"][number]} if "times" in asked else {}
            try:
                answer = compiled(*inputs, **more)
                wrong += not torch.allclose(answer, eager(*inputs, **more), atol=1e-3)
            except Exception as error:
                failed = type(error).__name__
                break
    from torch._dynamo.utils import counters

    inductor, aot = counters["inductor"], counters["aot_autograd"]
    told = {
        "fx_hit": inductor["fxgraph_cache_hit"],
        "fx_miss": inductor["fxgraph_cache_miss"],
        "fx_bypass": inductor["fxgraph_cache_bypass"],
        "aot_hit": aot["autograd_cache_hit"],
        "aot_miss": aot["autograd_cache_miss"],
        "aot_bypass": aot["autograd_cache_bypass"],
        "graphs": counters["stats"]["unique_graphs"],
        "compilers": compilers,
        "failed": failed,
        "wrong": wrong,
    }
    print(json.dumps(told))


main()
