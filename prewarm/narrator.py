"""What a service tells while it works: log lines, its status for systemd, and who is under work.

Owns the words; may be called from every thread.
"""

from __future__ import annotations

from prewarm.build.job_board import JobBoard
from prewarm.build.step import Step
from prewarm.errors import PrewarmError
from prewarm.log import Level, Log
from prewarm.notify import Notifier


class Narrator:
    """Turns steps and errors into log lines and a status line."""

    def __init__(self, log: Log, notifier: Notifier, board: JobBoard) -> None:
        self._log = log
        self._notifier = notifier
        self._board = board
        self._doing: dict[str, str] = {}

    def step(self, step: Step) -> None:
        """Tell of a step of the work."""
        if step.outcome is not None:
            level: Level = "info" if step.outcome in ("warm", "partial") else "warning"
            detail = step.detail or None
            self._log.event(
                step.outcome, level=level, model=step.model, detail=detail, seconds=step.seconds
            )
            self._doing.pop(step.model, None)
            self.standing()
        elif step.what == "begin":
            self._log.event("begin", model=step.model)
            self._doing[step.model] = "building"
            self.standing()
        else:
            self._log.event(step.what, level="debug", model=step.model, detail=step.detail or None)

    def standing(self) -> None:
        """Tell the service manager what is under work and how much waits."""
        doing = ", ".join(tuple(self._doing)) or "idle"
        self._notifier.status(f"{doing}; {len(self._board.jobs())} waiting")

    def trouble(self, error: PrewarmError | OSError) -> None:
        """Tell of an error that does not end the service; a disk may refuse at any call."""
        if isinstance(error, OSError):
            error = PrewarmError(f"{type(error).__name__}: {error}")
        if error.code == "interrupted":
            return  # the end itself is told
        self._log.event("trouble", level="error", detail=str(error), code=error.code)
        self._notifier.status(str(error))
