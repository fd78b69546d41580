"""Whose turn it is on a device, so that nothing is timed there beside something else.

Who has the turn has the device for itself. A worker has it for all that it does for a job (shared
bundles, packing, proofs), except while its child compiles: that takes long, and only parts of it
are timed. A child that compiles is a *member*: it holds still while somebody else has the turn, and
takes the turn itself for what it times (``turn_door.py``). Rules:

- Turns are given in the order in which they were asked for; a member that has it may take it again,
  since several of its processes time at once.
- Members hold still before the turn is given, and a new one only begins when it is nobody's.
- Each member knows when it held still and when another one worked beside it, so that its seconds
  can be told (``Member.alone_s``).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prewarm.build.interrupted import Interrupted

#: How often somebody who waits looks whether the run is to stop.
LOOK_S = 0.2


@dataclass(eq=False, slots=True)
class Interval:
    """A time by the monotonic clock; without an end it lasts."""

    from_s: float
    to_s: float | None = None

    def within(self, from_s: float, to_s: float) -> float:
        """Return how many seconds of it lie in another time."""
        ends_s = to_s if self.to_s is None else min(self.to_s, to_s)
        return max(0.0, ends_s - max(self.from_s, from_s))


@dataclass(eq=False, slots=True)
class Member:
    """A child that compiles, and how it is made to hold still and go on."""

    hold_still: Callable[[], None] = lambda: None
    go_on: Callable[[], None] = lambda: None
    still: list[Interval] = field(default_factory=list)
    beside: dict[Member, list[Interval]] = field(default_factory=dict)

    def still_s(self, from_s: float, to_s: float) -> float:
        """Return how many seconds of a time it held still."""
        return sum(one.within(from_s, to_s) for one in self.still)

    def alone_s(self, from_s: float, to_s: float) -> float | None:
        """Return the seconds that it worked in a time; None if another one worked beside it."""
        others = (one for intervals in self.beside.values() for one in intervals)
        if any(one.within(from_s, to_s) > 0 for one in others):
            return None
        return to_s - from_s - self.still_s(from_s, to_s)


class Turns:
    """The turn of one device; safe to use from several threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._line: deque[object] = deque()
        self._members: list[Member] = []
        self._holder: object | None = None
        self._times = 0

    @property
    def is_shared(self) -> bool:
        """Whether a child compiles on the device."""
        with self._changed:
            return bool(self._members)

    @contextlib.contextmanager
    def held(self, stop: threading.Event) -> Iterator[Turn]:
        """Have the turn; the turn can be lent while it is not needed.

        Raises:
            Interrupted: ``stop`` was set while it waited.
        """
        turn = Turn(self, stop)
        self.take(turn, stop)
        try:
            yield turn
        finally:
            self.give(turn)

    def take(self, who: object, stop: threading.Event) -> None:
        """Wait for the turn and have it; members other than ``who`` hold still then.

        Raises:
            Interrupted: ``stop`` was set while it waited.
        """
        ticket = object()
        with self._changed:
            if self._holder is who:
                self._times += 1
                return
            self._line.append(ticket)
            try:
                while self._holder is not None or self._line[0] is not ticket:
                    if self._holder is who:
                        break
                    if stop.is_set():
                        raise Interrupted("interrupted; the work is queued again")
                    self._changed.wait(LOOK_S)
            finally:
                self._line.remove(ticket)
                self._changed.notify_all()
            self._times += 1
            if self._holder is None:
                self._holder = who
                for member in self._members:
                    if member is not who:
                        self._hold(member)

    def give(self, who: object) -> None:
        """Give back what was taken once; nothing happens where ``who`` does not have it."""
        with self._changed:
            if self._holder is not who:
                return
            self._times -= 1
            if self._times == 0:
                self._free()

    def join(self, member: Member, start: Callable[[], None], stop: threading.Event) -> None:
        """Start a child as a member, while nobody else has the turn.

        Raises:
            Interrupted: ``stop`` was set while it waited.
        """
        self.take(member, stop)
        try:
            start()
            with self._changed:
                now_s = time.monotonic()
                for other in self._members:
                    together = Interval(now_s)
                    other.beside.setdefault(member, []).append(together)
                    member.beside.setdefault(other, []).append(together)
                self._members.append(member)
        finally:
            self.give(member)

    def leave(self, member: Member) -> None:
        """Let a member go that ends; whatever it had is given back."""
        with self._changed:
            if member not in self._members:
                return
            self._members.remove(member)
            self._go(member)
            now_s = time.monotonic()
            for together in (one for found in member.beside.values() for one in found):
                together.to_s = together.to_s or now_s
            if self._holder is member:
                self._times = 0
                self._free()

    def _free(self) -> None:
        self._holder = None
        for member in self._members:
            self._go(member)
        self._changed.notify_all()

    def _hold(self, member: Member) -> None:
        member.still.append(Interval(time.monotonic()))
        member.hold_still()

    def _go(self, member: Member) -> None:
        if member.still and member.still[-1].to_s is None:
            member.go_on()
            member.still[-1].to_s = time.monotonic()


class Turn:
    """A turn that a worker has."""

    def __init__(self, turns: Turns, stop: threading.Event) -> None:
        self._turns = turns
        self._stop = stop

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Let others have the turn meanwhile.

        Raises:
            Interrupted: the run was to stop before it could be taken again.
        """
        self._turns.give(self)
        # An error goes its way at once: nothing more is done that needs the turn.
        yield
        self._turns.take(self, self._stop)
