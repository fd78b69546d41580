"""What a verification of one entry came to, and the sentence that tells it. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from prewarm.store.status import Status


class Outcome(StrEnum):
    """What became of the entry; the words stand in JSON."""

    PROVEN = "proven"
    """The new proof is as good as its bundle can be, and recorded."""
    UNCHANGED = "unchanged"
    """Partial before, partial for the same reason now; nothing was recorded."""
    SET_ASIDE = "set_aside"
    """The bundle is damaged or failed its proof; the entry is queued."""
    NOT_PROVEN = "not_proven"
    """The proof did not come to a verdict; the entry is as it was."""
    NOT_TRIED = "not_tried"
    """There is nothing to prove: it changed, or was never published here."""


@dataclass(frozen=True, slots=True)
class Verified:
    """One model's outcome; ``processes`` and ``first_call_s`` are those of a recorded proof."""

    model: str
    outcome: Outcome
    reason: str | None = None
    code: str | None = None
    environment_id: str | None = None
    status: Status | None = None
    processes: int | None = None
    first_call_s: float | None = None

    @property
    def is_warm(self) -> bool:
        """Whether it was proven warm again."""
        return self.outcome is Outcome.PROVEN and self.status is Status.WARM

    def sentence(self) -> str:
        """Say it in one line."""
        told = f"{self.model}: {self.reason}"
        match self.outcome:
            case Outcome.PROVEN:
                return f"{self.model}: {self._proven()}"
            case Outcome.UNCHANGED:
                return f"{self.model}: still {self.status}: {self.reason}"
            case Outcome.SET_ASIDE:
                return f"{told}; it left the manifest, and the next `prewarm scan` builds it again"
            case Outcome.NOT_PROVEN:
                return f"{self.model}: not proven again: {self.reason}; it stays {self.status}"
        return told

    def _proven(self) -> str:
        processes = f"{self.processes} fresh process" + ("es" if self.processes != 1 else "")
        first_s = "" if self.first_call_s is None else f", first call {self.first_call_s:.1f} s"
        why = f"; {self.reason}" if self.reason else ""
        return f"{self.status}, proven again in {processes}{first_s}{why}"

    def to_dict(self) -> dict[str, object]:
        """Return it as it stands in JSON."""
        return {
            "model": self.model,
            "environment": self.environment_id,
            "outcome": self.outcome.value,
            "status": self.status.value if self.status else None,
            "reason": self.reason,
            "code": self.code,
            "processes": self.processes,
            "warm_s": self.first_call_s,
        }
