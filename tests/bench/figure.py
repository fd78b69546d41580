"""A measured figure beside its limit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure; ``at_least`` tells on which side of the limit it must be."""

    name: str
    measured: float
    limit: float
    unit: str
    at_least: bool = False

    @property
    def holds(self) -> bool:
        if self.at_least:
            return self.measured >= self.limit
        return self.measured <= self.limit

    def __str__(self) -> str:
        side = "at least" if self.at_least else "at most"
        mark = "ok  " if self.holds else "OVER"
        return f"{mark} {self.name}: {self.measured:.3f} {self.unit} ({side} {self.limit:g})"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"holds": self.holds}
