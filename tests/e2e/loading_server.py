"""A server that loads its model with prewarm, in one of several ways. Prints one JSON line.

Usage: ``loading_server.py MODEL CHECKPOINT WAY``. With ``BLOCKED`` set, nothing but the standard
library, torch and prewarm itself can be imported.
"""

import importlib.abc
import json
import os
import sys
import warnings

#: What the builder needs beside the standard library.
DEPENDENCIES = {
    "click", "rich", "pydantic", "pydantic_core", "sqlite_utils", "zstandard", "cryptography",
    "psutil", "pynvml", "starlette", "uvicorn", "anyio", "prometheus_client", "watchdog",
}  # fmt: skip


class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in DEPENDENCIES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


if os.environ.get("BLOCKED"):
    sys.meta_path.insert(0, Blocker())

import prewarm  # noqa: E402

assert not DEPENDENCIES & set(sys.modules), "importing prewarm imports more than itself"
assert "torch" not in sys.modules

model, checkpoint, way = sys.argv[1:4]
told = {"way": way}


def caught(function):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            output, error = function(), None
        except prewarm.PrewarmError as raised:
            output, error = None, raised
    texts = [str(one.message) for one in seen if issubclass(one.category, prewarm.PrewarmWarning)]
    return output, texts, error and [type(error).__name__, error.code, str(error)]


def eager(x):
    import torch

    sys.path.insert(0, os.path.join(checkpoint, "..", "src"))
    import own

    module = own.build().eval()
    state = torch.load(os.path.join(checkpoint, "weights.pt"), weights_only=True)
    module.load_state_dict(state)
    with torch.inference_mode():
        return module(x)


def compare(loaded, rows):
    import torch

    x = torch.randn(rows, 64)
    output = loaded(x)
    assert output.is_inference()
    return float((output - eager(x)).abs().max())


def whole():
    """Load, answer as eager does, in another thread too, and meet an undeclared size."""
    import threading

    loaded, told["load_warnings"], told["load_error"] = caught(
        lambda: prewarm.load(
            model, path=checkpoint, on_recompile=os.environ.get("ON_RECOMPILE", "warn")
        )
    )
    if loaded is None:
        return
    told["share"] = loaded.share
    told["difference"], told["declared_warnings"], told["declared_error"] = caught(
        lambda: compare(loaded, 8)
    )
    threaded = []
    thread = threading.Thread(target=lambda: threaded.append(caught(lambda: compare(loaded, 8))))
    thread.start()
    thread.join()
    told["threaded"] = threaded[0]
    told["other"], told["other_warnings"], told["other_error"] = caught(lambda: compare(loaded, 3))
    told["again"], told["again_warnings"], told["again_error"] = caught(lambda: compare(loaded, 3))
    told["after"], _, told["after_error"] = caught(lambda: compare(loaded, 8))


def imported():
    """Import torch first, and what reads its variables."""
    import torch
    import torch._inductor.config

    assert torch._inductor.config.cpp_cache_precompile_headers
    before = torch.get_rng_state()
    loaded, told["warnings"], told["error"] = caught(lambda: prewarm.load(model))
    # The server's own random numbers go on as they were.
    assert torch.equal(torch.get_rng_state(), before)
    told["difference"] = compare(loaded, 8)


def compiled():
    """Compile first."""
    import torch

    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    activation, told["warnings"], _ = caught(lambda: prewarm.activate(model))
    told["directory"] = activation.directory and str(activation.directory)
    _, _, told["error"] = caught(lambda: prewarm.activate(model, on_miss="fail"))
    told["variable"] = os.environ.get("TORCHINDUCTOR_CACHE_DIR")


def only_activated():
    """Activate, and tell what came of it."""
    activation, told["warnings"], told["error"] = caught(lambda: prewarm.activate(model))
    told["warm"] = activation.warm
    _, _, told["failed"] = caught(lambda: prewarm.activate(model, on_miss="fail"))


def activated():
    """Activate, then compile as a server that knows nothing of prewarm."""
    activation, told["warnings"], told["error"] = caught(lambda: prewarm.activate(model))
    told["warm"] = activation.warm
    import torch

    sys.path.insert(0, os.path.join(checkpoint, "..", "src"))
    import own

    module = own.build().eval()
    compiled = torch.compile(module, mode="default", dynamic=False)
    with torch.inference_mode():
        compiled(torch.randn(8, 64))


globals()[way]()
print(json.dumps(told))
