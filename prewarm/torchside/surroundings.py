"""What stands around a call on the server: gradients, autocast, and torch.compile's stance."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

import torch

from .inputs import dtype_of


@contextlib.contextmanager
def around(model: dict[str, Any]) -> Iterator[None]:
    """Enter the declared grad mode and autocast."""
    grad = {"inference": torch.inference_mode, "no_grad": torch.no_grad, "grad": torch.enable_grad}[
        model["grad"]
    ]
    with contextlib.ExitStack() as stack:
        stack.enter_context(grad())
        if model.get("autocast"):
            kind = "cuda" if model.get("device") == "cuda" else "cpu"
            stack.enter_context(torch.autocast(kind, dtype=dtype_of(model["autocast"])))
        yield


def backward(model: dict[str, Any], output: Any) -> None:
    """With ``grad = "grad"``, reduce the output by the declared loss and run the backward pass."""
    if model["grad"] != "grad":
        return
    loss = model.get("loss") or "sum"
    if loss == "sum":
        value = sum(tensor.float().sum() for tensor in tensors_of(output) if tensor.requires_grad)
    else:
        module_name, _, name = loss.partition(":")
        value = getattr(importlib.import_module(module_name), name)(output)
    if isinstance(value, torch.Tensor):
        value.backward()


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return the tensors of an output in a stable order.

    Tuples, lists, dicts, dataclasses, model outputs.
    """
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict) or hasattr(value, "to_tuple"):
        parts = value.values() if hasattr(value, "values") else value.to_tuple()
        return [tensor for part in parts for tensor in tensors_of(part)]
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors_of(part)]
    if hasattr(value, "__dataclass_fields__"):
        return [t for name in value.__dataclass_fields__ for t in tensors_of(getattr(value, name))]
    return []


def stance(name: str) -> Any:
    """Return torch.compile's stance as a context.

    ``force_eager``, ``fail_on_recompile`` (torch 2.6 and newer).
    """
    return torch.compiler.set_stance(name)


def synchronize(device: str) -> None:
    """Wait until the device has finished, so that a clock can be read."""
    if device == "cuda":
        torch.cuda.synchronize()
