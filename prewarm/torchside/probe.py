"""The probe: what torch itself says about the interpreter and the machine.

Asked once per environment.
"""

from __future__ import annotations

from typing import Any

from .deep_facts import deep_facts
from .protocol import Channel, Refusal


def answer(request: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Import torch and return what only it knows; ``request["device"]`` must be there."""
    channel.progress("import", what="importing torch")
    try:
        import torch
    except ImportError as error:
        import sys

        raise Refusal(
            "missing_torch",
            "torch cannot be imported by %s (%s); install it there or name another python in "
            "[model] interpreter" % (sys.executable, error),
        ) from error
    device = request.get("device") or "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise Refusal(
            "no_gpu",
            'the declaration asks for device = "cuda", and torch %s sees no GPU here'
            % torch.__version__,
        )
    properties = torch.cuda.get_device_properties(0) if device == "cuda" else None
    return {
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "device": properties.name if properties else "cpu",
        "capability": "%d.%d" % (properties.major, properties.minor) if properties else None,
        "device_memory_bytes": properties.total_memory if properties else None,
        "recompile_limit": _recompile_limit(),
        # Only where it is asked for: it takes a second, and may start a compiler.
        "deep": deep_facts(device) if request.get("deep") else None,
    }


def _recompile_limit() -> int | None:
    import torch._dynamo.config as dynamo

    limit = getattr(dynamo, "recompile_limit", None)
    return int(limit) if limit is not None else None
