"""The mode ladder: which failures make the next, lighter mode worth a try. Pure (design.md §8)."""

from __future__ import annotations

from collections.abc import Sequence

#: Codes of failures that a lighter mode may avoid: max-autotune needs more memory and time than the
#: model itself.
LIGHTER_MAY_HELP = frozenset({"out_of_memory", "timeout", "memory_limit", "killed"})
#: A kill without a word may be the kernel's for want of memory, or anybody's by mistake: the same
#: mode is tried once more, since an entry that fell to a lighter one stays there.
TRIED_AGAIN = "killed"


def next_mode(modes: Sequence[str], failures: Sequence[tuple[str, str]]) -> str | None:
    """Return the mode to try after these failures, each a mode and its code.

    Or None if the latest is the last word.
    """
    mode, code = failures[-1]
    if code not in LIGHTER_MAY_HELP:
        return None
    if code == TRIED_AGAIN and failures.count((mode, code)) == 1:
        return mode
    rest = list(modes)[list(modes).index(mode) + 1 :]
    return rest[0] if rest else None


def fallback_reason(asked: str, used: str, why: str) -> str:
    """Say why an entry that starts clean is still only ``partial``."""
    return (
        f"built under {used}, since {asked} failed ({why}); a server that asks for {asked} itself "
        "would compile, one that takes its mode from prewarm starts warm"
    )
