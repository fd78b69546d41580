"""Whether what was sampled stayed flat: the second quarter of a run against its last. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Sample = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How much more the last quarter may show: a share of the second's, and so much beside."""

    share: float
    more: float

    def allows(self, before: float) -> float:
        """Return the most that is flat."""
        return before * (1 + self.share) + self.more


@dataclass(frozen=True, slots=True)
class Course:
    """What became of one thing that was sampled."""

    name: str
    second_quarter: float
    last_quarter: float
    most: float
    allowed: float

    @property
    def is_flat(self) -> bool:
        return self.last_quarter <= self.allowed


def courses(samples: Sequence[Sample], tolerances: Mapping[str, Tolerance]) -> tuple[Course, ...]:
    """Compare the medians of the quarters; the first one fills what is then to stay.

    Raises:
        ValueError: there are too few samples to be compared.
    """
    quarter = len(samples) // 4
    if quarter < 5:
        raise ValueError(f"{len(samples)} samples are too few: 20 are needed")
    second, last = samples[quarter : 2 * quarter], samples[-quarter:]
    found = []
    for name, tolerance in tolerances.items():
        before, after = (
            statistics.median(sample[name] for sample in part) for part in (second, last)
        )
        most = max(sample[name] for sample in samples)
        found.append(Course(name, before, after, most, tolerance.allows(before)))
    return tuple(found)
