"""What a child's progress message says to a person. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WORDS = {
    "import": "importing torch",
    "load": "loaded",
    "cold": "compiling call",
    "steady": "timing call",
    "warm": "starting from the bundle, call",
    "again": "every call once more, recompiling forbidden",
    "compare": "comparing with eager",
}


def progress_detail(told: Mapping[str, Any]) -> str:
    """Return e.g. ``compiling call 2 of 4: chat (batch=8, seq=64)``."""
    text = _WORDS.get(str(told.get("step")), str(told.get("step", "")))
    if "call" in told:
        sizes = told.get("sizes") or {}
        size_text = ", ".join(f"{name}={size}" for name, size in sizes.items())
        text += f" {told['call']} of {told.get('of')}: {told.get('shape_set')}"
        text += f" ({size_text})" if size_text else ""
    elif told.get("step") == "load" and "seconds" in told:
        text += f" in {told['seconds']} s"
    return text
