"""The mode ladder: which failures make the next, lighter mode worth a try. Pure (design.md §8)."""

from __future__ import annotations

from collections.abc import Sequence

#: Codes of failures that a lighter mode may avoid: max-autotune needs more memory and time than the
#: model itself.
LIGHTER_MAY_HELP = frozenset({"out_of_memory", "timeout", "memory_limit", "killed"})


def next_mode(modes: Sequence[str], failed: str, code: str) -> str | None:
    """Return the mode to try after ``failed`` ended with ``code``.

    Or None if that is the last word.
    """
    if code not in LIGHTER_MAY_HELP:
        return None
    rest = list(modes)[list(modes).index(failed) + 1 :]
    return rest[0] if rest else None


def fallback_reason(asked: str, used: str, why: str) -> str:
    """Say why an entry that starts clean is still only ``partial``."""
    return (
        f"built under {used}, since {asked} failed ({why}); a server that asks for {asked} itself "
        "would compile, one that takes its mode from prewarm starts warm"
    )
