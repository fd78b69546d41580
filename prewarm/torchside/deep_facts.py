"""What only torch itself can tell about an interpreter, for ``prewarm explain --deep``.

Asked in a proof once its start report is made, and by the probe, which loads no model. Each fact is
text; None where this torch cannot tell it.
"""

from __future__ import annotations

from . import upstream_facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def deep_facts(device: str) -> dict[str, str | None]:
    """Return the facts; ``device`` "cpu" asks for the instruction set too."""
    import torch

    return {
        "num_threads": _told(lambda: str(torch.get_num_threads())),
        "vec_isa": upstream_facts.vec_isa() if device == "cpu" else None,
        "triton_version": upstream_facts.triton_version(),
        "torch_source": upstream_facts.torch_key_digest(),
        "system": upstream_facts.system_digest(),
        "matmul_precision": _told(torch.get_float32_matmul_precision),
        "default_dtype": _told(lambda: str(torch.get_default_dtype())),
        "deterministic": _told(lambda: str(torch.are_deterministic_algorithms_enabled())),
        "inductor_config": upstream_facts.changed_settings("torch._inductor.config"),
        "dynamo_config": upstream_facts.changed_settings("torch._dynamo.config"),
    }


def _told(ask: Callable[[], str | None]) -> str | None:
    try:
        return ask()
    except Exception:
        return None
