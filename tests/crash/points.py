"""Chosen points: every kind of call by which a build changes files, one fault at each.

Owns the list, made from the trace of a run without faults in an empty place, and one trial: a fresh
place, one fault at the point, the checks, the rest of the work, the checks again.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

from .arena import Arena
from .injector import CHILD, CUTS, MAIN, Action, Fault

#: Scratch is removed at the next start, whatever is in it; one path stands for all of a directory.
_SCRATCH = (
    "state/work/proof-X", "state/work/probe-X", "state/work/torchside-X", "state/work-dead",
    "state/work/build-X/cache", "state/work/build-X/compile",
)  # fmt: skip

_ERRORS = {"write": errno.ENOSPC, "mkdir": errno.ENOSPC, "link": errno.ENOSPC}


@dataclass(frozen=True, slots=True)
class Point:
    """A kind of call: who makes it, which operation, on what; and how often one build does."""

    role: int
    op: str
    path: str
    times: int

    def fault(self, action: Action, *, skip: int = 0, error: int = 0) -> Fault:
        escaped = "".join(f"[{c}]" if c in "*?[" else c for c in self.path)
        return Fault(action, op=self.op, path=escaped, skip=skip, error=error, roles=self.role)


def points_of(calls: list[tuple[int, str, str]]) -> tuple[Point, ...]:
    """Return the points of a trace in the order in which they were first reached."""
    found: dict[tuple[int, str, str], int] = {}
    scratch: set[tuple[str, str]] = set()
    for role, op, path in calls:
        if role == CHILD or path.endswith("-shm"):
            continue
        kind = next((start for start in _SCRATCH if path.startswith(start)), None)
        if kind is not None:
            if (op, kind) in scratch:
                continue
            scratch.add((op, kind))
        found[role, op, path] = found.get((role, op, path), 0) + 1
    return tuple(Point(*call, times) for call, times in found.items())


def faults_at(point: Point) -> tuple[Fault, ...]:
    """Return what is tried at a point: a kill, a power cut where it matters, an error."""
    if point.op in ("chmod", "utime"):
        return (point.fault(Action.FAIL, error=errno.EIO),)
    lasting = not point.path.startswith(("state/work", "state/logs"))
    kill = Action.KILL_TORN if point.op == "write" else Action.KILL_AFTER
    faults = []
    for skip in _times(point):
        faults.append(point.fault(kill, skip=skip))
        if lasting and point.role == MAIN:
            faults.append(point.fault(Action.CUT_AFTER, skip=skip))
    faults.append(point.fault(Action.FAIL, error=_ERRORS.get(point.op, errno.EIO)))
    return tuple(faults)


def _times(point: Point) -> tuple[int, ...]:
    """Return which of its times are tried: of a commit several, of what publishes the last too."""
    last = point.times - 1
    if point.path == "state/prewarm.db-wal" and point.op == "write":
        return tuple(range(0, last, max(1, last // 6)))
    return (0, last) if last and point.path.startswith("cache/manifests") else (0,)


def trace(arena: Arena) -> tuple[Point, ...]:
    """Run one build from nothing, without faults, and return its points."""
    arena.injector.trace()
    arena.arrive("m0")
    arena.start()
    arena.until(arena.is_quiet, "the end of the work")
    assert arena.end() == 0
    arena.injector.disarm()
    return points_of(arena.injector.traced())


def kind_of(fault: Fault) -> str:
    """Return the word for the tally."""
    if fault.action is Action.FAIL:
        return f"point_{errno.errorcode[fault.error]}_{fault.op}"
    return "point_power_cut" if fault.action in CUTS else "point_kill"
