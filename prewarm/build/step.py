"""A step of long work, told to whoever shows it: the command line, later the daemon.

Values only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """What happens now: the model, the word for it, a detail for people, and how far the work is.

    ``done`` and ``of`` count the entries of this run; ``outcome`` is set when the model's work is
    over.
    """

    model: str
    what: str
    detail: str = ""
    done: int = 0
    of: int = 0
    outcome: str | None = None
    seconds: float | None = None


#: Whoever shows steps; called from the thread that works.
Reporter = Callable[[Step], None]
