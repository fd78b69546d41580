"""A child's part in the turns of its device: it starts as a member, holds still for others, leaves.

Joins ``turns.py``, which knows no processes, with the processes of one child.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from prewarm.build.processes import Processes
from prewarm.build.turns import Member, Turns


class Membership:
    """One child's membership; not for a second child."""

    def __init__(self, turns: Turns) -> None:
        self.member = Member()
        self._turns = turns

    def start(self, start: Callable[[], Processes], stop: threading.Event) -> Processes:
        """Start the child once nobody has the turn.

        Raises:
            Interrupted: ``stop`` was set while it waited.
        """
        started: list[Processes] = []

        def begin() -> None:
            processes = start()
            started.append(processes)
            self.member.hold_still, self.member.go_on = processes.hold_still, processes.go_on

        self._turns.join(self.member, begin, stop)
        return started[0]

    def still_s(self, from_s: float, to_s: float) -> float:
        """Return how many seconds of a time the child held still."""
        return self.member.still_s(from_s, to_s)

    def leave(self) -> None:
        """End the membership; the child goes on, to its end."""
        self._turns.leave(self.member)
