"""The body of ``POST /v1/reports``: a start report as it is folded from the shim's events.

Strict about names and types, since any user of the machine may send one; a test holds the fields to
those of the fold.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from prewarm.build.verdict import ZEROS
from prewarm.serve.body import Body
from prewarm.serve.requests import EnvironmentId, ModelName
from prewarm.store.start_summary import StartSummary

#: Thirty years: nothing starts for longer.
_LONGEST_S = 1e9

#: ``null`` could not be watched, ``"n/a"`` does not exist there; neither is 0.
Count = Annotated[int, Field(ge=0, lt=1 << 53)] | Literal["n/a"] | None
Tables = Annotated[list[dict[str, Any]], Field(max_length=10_000)]
Texts = Annotated[list[str], Field(max_length=10_000)]


class StartReport(Body):
    """What one start really did; a field that is missing could not be watched."""

    graphs_compiled: Count = None
    graphs_bypassed: Count = None
    fx_misses: Count = None
    aot_misses: Count = None
    aot_bypassed: Count = None
    cpp_compiled: Count = None
    triton_compiled: Count = None
    benchmarked_autotuning: Count = None
    benchmarked_coordinate_descent: Count = None
    recompiles: Count = None
    limits_hit: Count = None
    compilers_started: Count = None
    files_changed: Count = None
    bypass_reasons: Texts | None = None
    compilers: Texts = Field(default_factory=list)
    files: Texts = Field(default_factory=list)
    calls: Tables = Field(default_factory=list)
    graphs: Tables | None = None
    processes: Tables = Field(default_factory=list)
    differs: Tables = Field(default_factory=list)
    not_watched: Texts = Field(default_factory=list)

    @property
    def compiled(self) -> bool | None:
        """Whether anything happened that a warm start does not do; None where it cannot be told."""
        counts = [getattr(self, name) for name, _, _ in ZEROS]
        if any(count not in (0, None, "n/a") for count in counts):
            return True
        return None if None in counts else False

    def summary(self) -> StartSummary:
        """Return what of it is looked at often, cleaned of whatever could do harm there."""
        return StartSummary.of(self.model_dump(), (name for name, _, _ in ZEROS))

    @property
    def first_answer_s(self) -> float | None:
        """Seconds to the end of the first compiled graph in the slowest process."""
        seconds: list[Any] = [process.get("first_run_s") for process in self.processes]
        told = [one for one in seconds if type(one) in (int, float) and 0 <= one < _LONGEST_S]
        return max((float(one) for one in told), default=None)


class Sent(Body):
    """A start report, and what was started: a model, where, and from which bundle, if any."""

    model: ModelName
    environment: EnvironmentId
    bundle: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    first_answer_s: Annotated[float, Field(ge=0, lt=_LONGEST_S)] | None = None
    report: StartReport
    #: The number of an earlier report of the same start, which compiled something since.
    instead_of: Annotated[int, Field(gt=0, lt=1 << 53)] | None = None
