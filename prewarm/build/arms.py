"""The arms of a comparison: which starts are put side by side, and what each was like.

Values only; they are run in ``side_by_side.py``.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Arm(Enum):
    """One way to start; the value is how it is called in tables and JSON."""

    EAGER = "eager"
    COLD = "cold"
    UPSTREAM_FIRST = "upstream's warm directory, first start"
    UPSTREAM_SECOND = "upstream's warm directory, second start"
    MEGA_CACHE = "Mega-Cache into an empty directory"
    PREWARM = "prewarm"


#: Fields of a start report that say what a start did again; None where it could not be watched.
COUNTS = (
    "graphs_compiled",
    "triton_compiled",
    "cpp_compiled",
    "benchmarked_autotuning",
    "benchmarked_coordinate_descent",
    "compilers_started",
)


@dataclass(frozen=True, slots=True)
class Start:
    """One fresh process, in seconds, and what it compiled and tuned.

    ``before_s`` is what came before it: the hook, or reading the Mega-Cache. ``import_s`` is from
    the begin of the process to torch imported, ``first_s`` from ``torch.compile`` to the first
    answer, ``whole_s`` all of it with ``before_s``.
    """

    before_s: float
    import_s: float
    build_s: float
    first_s: float
    second_s: float
    others_s: tuple[float, ...]
    whole_s: float
    steady_ms: float
    counts: Mapping[str, int | str | None]

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any], *, hook_s: float = 0.0) -> Start:
        """Take what a child answered; see ``torchside/starting.py``."""
        return cls(
            before_s=round(hook_s + answer["artifacts_s"], 3),
            import_s=round(answer["import_s"], 3),
            build_s=round(answer["build_s"], 3),
            first_s=round(answer["first_s"], 3),
            second_s=round(answer["second_s"], 3),
            others_s=tuple(round(seconds, 3) for seconds in answer["others_s"]),
            whole_s=round(hook_s + answer["whole_s"], 3),
            steady_ms=round(answer["steady_ms"], 4),
            counts={name: answer["report"].get(name) for name in COUNTS},
        )


@dataclass(frozen=True, slots=True)
class ArmResult:
    """The starts of one arm, and what it keeps on disk (None where it keeps nothing)."""

    arm: Arm
    starts: tuple[Start, ...]
    stored_bytes: int | None = None
    unpacked_bytes: int | None = None
    files: int | None = None

    def median(self, of: Callable[[Start], float]) -> float:
        """Return the median of a figure over the starts."""
        return statistics.median(of(start) for start in self.starts)

    def span(self, of: Callable[[Start], float]) -> tuple[float, float]:
        """Return the least and the greatest of a figure."""
        values = [of(start) for start in self.starts]
        return min(values), max(values)

    def counted(self, name: str) -> int | str | None:
        """Return the greatest count over the starts; None if one could not be watched."""
        found = [start.counts[name] for start in self.starts]
        if any(count is None for count in found):
            return None
        numbers = [count for count in found if isinstance(count, int)]
        return max(numbers) if numbers else found[0]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON with every start, so that medians can be made again."""
        return {
            "arm": self.arm.value,
            "starts": [asdict(start) for start in self.starts],
            "stored_bytes": self.stored_bytes,
            "unpacked_bytes": self.unpacked_bytes,
            "files": self.files,
        }


@dataclass(frozen=True, slots=True)
class SideBySide:
    """All arms of one model in one run on one machine."""

    model: str
    mode: str
    status: str
    requires: tuple[str, ...]
    environment: Mapping[str, str | None]
    at: str
    results: tuple[ArmResult, ...]

    def of(self, arm: Arm) -> ArmResult | None:
        """Return the result of an arm, None if it was not run."""
        return next((result for result in self.results if result.arm is arm), None)

    def ratios(self) -> dict[str, float | None]:
        """Return how much sooner prewarm answers, and what its whole start costs over eager's."""
        ours, eager = self.of(Arm.PREWARM), self.of(Arm.EAGER)
        if ours is None:
            return {}
        first = ours.median(lambda start: start.first_s)
        over = {
            "first_answer_cold": Arm.COLD,
            "first_answer_upstream_first": Arm.UPSTREAM_FIRST,
            "first_answer_upstream_second": Arm.UPSTREAM_SECOND,
            "first_answer_mega_cache": Arm.MEGA_CACHE,
        }
        found: dict[str, float | None] = {}
        for name, arm in over.items():
            other = self.of(arm)
            found[name] = (
                round(other.median(lambda start: start.first_s) / first, 2) if other else None
            )
        whole = ours.median(lambda start: start.whole_s)
        found["whole_start_above_eager_s"] = (
            round(whole - eager.median(lambda start: start.whole_s), 3) if eager else None
        )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return JSON of stable fields."""
        return {
            "model": self.model,
            "mode": self.mode,
            "status": self.status,
            "requires": list(self.requires),
            "at": self.at,
            "environment": dict(self.environment),
            "ratios": self.ratios(),
            "arms": [result.to_dict() for result in self.results],
        }
