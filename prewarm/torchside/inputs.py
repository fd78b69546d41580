"""Inputs of a declared call, made from the declaration alone and equal in every process.

An input is a table with ``dtype`` and ``shape`` (names of sizes, or numbers), filled by ``fill``,
by whole numbers in ``[low, high)``, or by a normal distribution; tables and lists nest.
"""

from __future__ import annotations

from typing import Any

import torch

from .protocol import Refusal

#: Seed of every input: the build, the proof and eager must see the same numbers.
SEED = 20240229


def dtype_of(name: str) -> torch.dtype:
    """Return the torch dtype of that name, such as ``"float32"``."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise Refusal(
            "bad_declaration", "dtype %r is not a dtype of torch %s" % (name, torch.__version__)
        )
    return found


def make_arguments(
    shape_set: dict[str, Any], sizes: dict[str, int], device: str, memory_format: str = ""
) -> tuple[list[Any], dict[str, Any]]:
    """Return ``(args, kwargs)`` of one declared call.

    ``shape_set`` is the declaration's table, ``sizes`` binds its names, e.g. ``{"batch": 8, "seq":
    64}``.
    """
    generator = torch.Generator(device="cpu").manual_seed(SEED)
    dynamic = frozenset(shape_set.get("dynamic_dims") or ())
    maker = _Maker(sizes, device, memory_format, generator, dynamic)
    args = [maker.value(item) for item in shape_set.get("args") or []]
    kwargs = {name: maker.value(item) for name, item in (shape_set.get("inputs") or {}).items()}
    for name, item in (shape_set.get("kwargs") or {}).items():
        kwargs[name] = maker.plain(item)
    steps = shape_set.get("steps") or 0
    if steps and shape_set.get("call") == "generate":
        kwargs.setdefault("max_new_tokens", steps)
    return args, kwargs


class _Maker:
    def __init__(
        self,
        sizes: dict[str, int],
        device: str,
        memory_format: str,
        generator: torch.Generator,
        dynamic: frozenset[str],
    ) -> None:
        self._sizes = sizes
        self._device = device
        self._memory_format = memory_format
        self._generator = generator
        self._dynamic = dynamic

    def value(self, item: Any) -> Any:
        if isinstance(item, dict) and "dtype" in item and "shape" in item:
            return self._tensor(item)
        if isinstance(item, dict):
            return {name: self.value(part) for name, part in item.items()}
        if isinstance(item, list):
            return [self.value(part) for part in item]
        return self.plain(item)

    def plain(self, item: Any) -> Any:
        if isinstance(item, str) and item.startswith("$"):
            return self._sizes[item[1:]]
        if isinstance(item, list):
            return [self.plain(part) for part in item]
        if isinstance(item, dict):
            return {name: self.plain(part) for name, part in item.items()}
        return item

    def _tensor(self, item: dict[str, Any]) -> torch.Tensor:
        dtype = dtype_of(item["dtype"])
        shape = [self._sizes[size] if isinstance(size, str) else size for size in item["shape"]]
        fill = item.get("fill")
        if fill is not None:
            made = torch.full(shape, fill, dtype=dtype)
        elif dtype is torch.bool:
            made = torch.randint(0, 2, shape, generator=self._generator).to(dtype)
        elif dtype.is_floating_point or dtype.is_complex:
            made = torch.randn(shape, generator=self._generator, dtype=torch.float32).to(dtype)
            low, high = item.get("low"), item.get("high")
            if low is not None or high is not None:
                made = made.clamp(low, high)
        else:
            low, high = item.get("low"), item.get("high")
            made = torch.randint(
                0 if low is None else int(low),
                2 if high is None else int(high),
                shape,
                generator=self._generator,
                dtype=dtype,
            )
        made = made.to(self._device)
        if self._memory_format and made.dim() == 4:
            made = made.to(memory_format=getattr(torch, self._memory_format))
        self._mark(made, item["shape"])
        return made

    def _mark(self, made: torch.Tensor, shape: list[int | str]) -> None:
        """Mark the declared dimensions as dynamic, as the server does.

        Not one of size 0 or 1: torch makes a graph of its own for those and refuses the mark
        (0/1 specialization, torch/fx/experimental/symbolic_shapes.py).
        """
        for place, size in enumerate(shape):
            if size in self._dynamic and made.shape[place] > 1:
                torch._dynamo.mark_dynamic(made, place)
