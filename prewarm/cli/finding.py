"""One finding of ``prewarm doctor``: what was looked at, what was found, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """A check's answer; ``next_step`` is given wherever it is not ``ok``."""

    check: str
    level: Literal["ok", "warn", "fail"]
    found: str
    next_step: str | None = None

    def to_dict(self) -> dict[str, str | None]:
        """Return the finding as it stands in ``doctor --json``."""
        return {
            "check": self.check,
            "level": self.level,
            "found": self.found,
            "next_step": self.next_step,
        }
