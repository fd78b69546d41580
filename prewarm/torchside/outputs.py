"""Do the compiled outputs agree with eager's within the dtype's tolerance? In one process."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .surroundings import tensors_of

#: Largest allowed ``max|compiled - eager| / max|eager|`` by dtype. Fused kernels round in another
#: order: a deep float32 model differs by some 1e-6; half types keep 8 or 11 bits of a number.
TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 2e-2,
    torch.bfloat16: 6e-2,
    torch.complex64: 1e-4,
    torch.complex128: 1e-9,
}
#: float32 on a GPU whose matrix products may run in TF32 (10 bits).
TOLERANCE_TF32 = 1e-2


def kept(output: Any) -> list[torch.Tensor]:
    """Copy an output's tensors to the CPU: CUDA graphs reuse their memory at the next call."""
    return [tensor.detach().to("cpu", copy=True) for tensor in tensors_of(output)]


def fresh(value: Any) -> Any:
    """Copy arguments, so that a call that changes its inputs does not change the next one's."""
    return copy.deepcopy(value)


class Precision(TorchDispatchMode):  # type: ignore[misc]  # torch is not followed
    """Notes the coarsest tolerance of all that is computed under it.

    A float32 output may come from products in bfloat16 (autocast around the call or inside
    ``forward``, weights of a half type): then it agrees to 8 bits, not to 23.
    """

    #: torch refuses a mode under a higher-order operator (cond, flex_attention) without this.
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.tolerance = 0.0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        for tensor in tensors_of(output):
            self.tolerance = max(self.tolerance, TOLERANCE.get(tensor.dtype, 0.0))
        return output


def coarsest_tolerance(run: Callable[[], object], module: Any) -> float:
    """Return the tolerance of the coarsest dtype that a call of ``run`` computes with.

    What cannot run under a mode of ours tells it by its parameters alone.
    """
    try:
        with Precision() as precision:
            run()
        return float(precision.tolerance)
    except Exception:
        parameters = module.parameters() if hasattr(module, "parameters") else ()
        return max((TOLERANCE.get(found.dtype, 0.0) for found in parameters), default=0.0)


def compare(
    compiled: list[torch.Tensor],
    eager: list[torch.Tensor],
    again: list[torch.Tensor],
    *,
    coarsest: float = 0.0,
) -> dict[str, Any]:
    """Compare a compiled output with eager's; ``again`` is eager under another seed.

    ``coarsest`` is the tolerance of the coarsest dtype that eager computed with on the way.

    Returns ``{"state", "worst", "tolerance"}``; state is ``agree``, ``differ``, or ``random`` when
    eager does not agree with itself under two seeds (dropout, random buffers), so that nothing can
    be compared.
    """
    if len(compiled) != len(eager):
        return {
            "state": "differ",
            "worst": None,
            "tolerance": None,
            "found": "%d tensors" % len(compiled),
        }
    worst, tolerance = 0.0, 0.0
    random = False
    for left, right, other in zip(compiled, eager, again, strict=True):
        if _distance(other, right) > _tolerance(right, coarsest):
            random = True
            continue
        distance = _distance(left, right)
        if distance >= worst:
            worst, tolerance = distance, _tolerance(right, coarsest)
        if distance > _tolerance(right, coarsest):
            return {"state": "differ", "worst": distance, "tolerance": _tolerance(right, coarsest)}
    return {"state": "random" if random else "agree", "worst": worst, "tolerance": tolerance}


def _tolerance(tensor: torch.Tensor, coarsest: float) -> float:
    own = TOLERANCE.get(tensor.dtype, 0.0)
    if own == 0.0:  # whole numbers
        return own
    if tensor.dtype is torch.float32 and torch.backends.cuda.matmul.allow_tf32:
        own = TOLERANCE_TF32
    return max(own, coarsest)


def _distance(left: torch.Tensor, right: torch.Tensor) -> float:
    if left.shape != right.shape or left.dtype != right.dtype:
        return float("inf")
    if left.numel() == 0:
        return 0.0
    if not (left.dtype.is_floating_point or left.dtype.is_complex):
        return 0.0 if torch.equal(left, right) else float("inf")
    wide = torch.complex128 if left.dtype.is_complex else torch.float64
    a, b = left.to(wide), right.to(wide)
    nan_a, nan_b = torch.isnan(a), torch.isnan(b)
    if not torch.equal(nan_a, nan_b):
        return float("inf")
    same = nan_a | (a == b)  # equal infinities included
    difference = torch.where(same, torch.zeros_like(a), a - b).abs()
    finite = b[torch.isfinite(b.abs())]
    scale = float(finite.abs().max()) if finite.numel() else 0.0
    return float(difference.max()) / (scale or 1.0)
