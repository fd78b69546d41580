"""One model in one process, compiled as declared, and the declared calls on it in any order.

Used alike by the build (``compiling.py``) and the proof (``proving.py``), so that both do exactly
what a server with this declaration does.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import torch

from . import outputs, surroundings
from .inputs import make_arguments
from .loaders import load_module
from .targets import call_once, compile_targets


@dataclass(frozen=True)
class DeclaredCall:
    """One call of a shape set, with its sizes bound, e.g. ``{"batch": 8, "seq": 64}``."""

    shape_set: dict[str, Any]
    sizes: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of its shape set."""
        return str(self.shape_set.get("name"))


def declared_calls(declaration: dict[str, Any]) -> list[DeclaredCall]:
    """Return every call of the declaration, in the order in which deployments make them."""
    return [
        DeclaredCall(shape_set, sizes)
        for shape_set in declaration["shapes"]
        for sizes in shape_set.get("sizes") or [{}]
    ]


class Session:
    """A loaded module and its compiled twin."""

    def __init__(self, declaration: dict[str, Any], checkpoint: str) -> None:
        self.model: dict[str, Any] = declaration["model"]
        self.section: dict[str, Any] = declaration["compile"]
        self.calls = declared_calls(declaration)
        self.device: str = self.model.get("device") or "cpu"
        self._set_threads()
        started_s = time.perf_counter()
        self.module = load_module(self.model, checkpoint)
        self.load_s = time.perf_counter() - started_s
        self.called: Any = None

    def compile(self, mode: str) -> None:
        """Call ``torch.compile`` on the declared targets.

        Nothing is compiled before the first call.
        """
        self.called = compile_targets(self.module, self.section, mode)

    def arguments(self, call: DeclaredCall) -> tuple[list[Any], dict[str, Any]]:
        """Make the call's inputs on the device."""
        return make_arguments(
            call.shape_set, call.sizes, self.device, self.model.get("memory_format") or ""
        )

    def run(self, call: DeclaredCall, arguments: tuple[list[Any], dict[str, Any]]) -> Any:
        """Make one compiled call as the server makes it; return its output once it is there."""
        args, kwargs = arguments
        with surroundings.around(self.model):
            output = call_once(self.called, call.shape_set, args, kwargs)
            surroundings.backward(self.model, output)
        surroundings.synchronize(self.device)
        return output

    def run_eager(self, call: DeclaredCall, seed: int = 0) -> list[torch.Tensor]:
        """Make the call without compiling and return copies of its output tensors."""
        torch.manual_seed(seed)
        arguments = outputs.fresh(self.arguments(call))
        with surroundings.stance("force_eager"):
            return outputs.kept(self.run(call, arguments))

    def peak_memory_bytes(self) -> dict[str, int | None]:
        """Return the peak resident memory of this process and the device's peak, in bytes."""
        import resource

        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        on_device = torch.cuda.max_memory_allocated() if self.device == "cuda" else None
        return {"resident": resident, "device": on_device}

    def _set_threads(self) -> None:
        threads = int(self.model.get("threads") or 0)
        if threads > 0:
            torch.set_num_threads(threads)
        elif "OMP_NUM_THREADS" in os.environ:
            torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"].split(",")[0]))
