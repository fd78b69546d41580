"""The time that a hook has left, handed to whatever may wait for somebody else."""

from __future__ import annotations

import time

from prewarm.errors import ManifestUnavailable


class Deadline:
    """A point in time; each wait is told how long it may take at most."""

    def __init__(self, seconds: float, *, option: str = "--timeout") -> None:
        self._seconds = seconds
        self._option = option
        self._ends_s = time.monotonic() + seconds

    def left_s(self, most_s: float = float("inf")) -> float:
        """Return the seconds that are left, ``most_s`` at most.

        Raises:
            ManifestUnavailable: there are none (code "timed_out").
        """
        left_s = self._ends_s - time.monotonic()
        if left_s <= 0:
            raise ManifestUnavailable(
                f"the {self._seconds:g} s of {self._option} are over; raise it, or look at why "
                "the builder is slow",
                code="timed_out",
            )
        return min(left_s, most_s)

    def is_over(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self._ends_s

    def pause(self, seconds: float) -> None:
        """Do nothing for so long, or until the end.

        Raises:
            ManifestUnavailable: no time is left.
        """
        time.sleep(self.left_s(seconds))

    def extend(self, seconds: float) -> None:
        """Put the end off: what was waited for on request is not counted."""
        self._ends_s += seconds
