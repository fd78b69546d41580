"""The kinds of faults, each drawn at random.

Owns how often each is drawn and where it may hit. A draw is made by the seed alone, so a failing
run can be made again as far as processes and their timing allow.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import TypeAlias

from .hooked import hooked_whole
from .injector import CHILD, MAIN, PACK, Action, Fault
from .rounds import Rounds

#: How many calls a start, a build and its parts make, roughly: how far a random one may lie.
CALLS_OF_START, CALLS_OF_BUILD, CALLS_OF_CHILD, CALLS_OF_PACK = 250, 330, 14, 7
CALLS_OF_GC, CALLS_OF_HOOK = 120, 150

_KILLS = (Action.KILL_BEFORE, Action.KILL_AFTER, Action.KILL_TORN)

Draw: TypeAlias = Callable[[Rounds, random.Random], bool]


def daemon_any_time(rounds: Rounds, draw: random.Random) -> bool:
    """The daemon is killed at any moment of its first seconds."""
    return rounds.kill_daemon("daemon_any_time", after_s=draw.uniform(0, 3.0), graph=_graph(draw))


def child_any_time(rounds: Rounds, draw: random.Random) -> bool:
    """A child is killed as soon as it is there, or a moment later."""
    after_s = draw.choice((0.0, draw.uniform(0, 0.15)))
    which = draw.randrange(3)
    return rounds.kill_child("child_any_time", which=which, after_s=after_s, graph=_own(draw))


def daemon_at_call(rounds: Rounds, draw: random.Random) -> bool:
    """The daemon is killed before, after or in the middle of a call that changes a file."""
    return _daemon(rounds, draw, "daemon_at_call", draw.choice(_KILLS))


def power_cut(rounds: Rounds, draw: random.Random) -> bool:
    """The power goes: what was not synced is lost."""
    action = draw.choice((Action.CUT_BEFORE, Action.CUT_AFTER))
    return _daemon(rounds, draw, "power_cut", action)


def pack_at_call(rounds: Rounds, draw: random.Random) -> bool:
    """The process that packs the bundle is killed."""
    fault = Fault(draw.choice(_KILLS), skip=draw.randrange(CALLS_OF_PACK), roles=PACK)
    return rounds.while_it_runs("pack_at_call", fault, graph=_own(draw))


def child_at_call(rounds: Rounds, draw: random.Random) -> bool:
    """The process that compiles or proves is killed while it writes."""
    fault = Fault(draw.choice(_KILLS), skip=draw.randrange(CALLS_OF_CHILD), roles=CHILD)
    return rounds.while_it_runs("child_at_call", fault, graph=_own(draw))


def failing_fsync(rounds: Rounds, draw: random.Random) -> bool:
    """The disk refuses to sync, once or for a while."""
    return _refusing(rounds, draw, "failing_fsync", errno.EIO, {"fsync": 6})


def full_disk(rounds: Rounds, draw: random.Random) -> bool:
    """The disk is full, for one call or for a while."""
    ops = {"write": 60, "open": 8, "mkdir": 8, "link": 2}
    return _refusing(rounds, draw, "full_disk", errno.ENOSPC, ops)


def failing_call(rounds: Rounds, draw: random.Random) -> bool:
    """The disk fails while something is written, renamed or opened."""
    ops = {"write": 60, "rename": 3, "open": 30, "unlink": 3, "chmod": 3, "truncate": 1}
    return _refusing(rounds, draw, "failing_call", errno.EIO, ops)


def lost_state(rounds: Rounds, draw: random.Random) -> bool:
    """The state is gone, and the daemon is killed while it adopts what is published."""
    rounds.recover()
    published = set(rounds.arena.models)
    fault = Fault(draw.choice(_KILLS), op="write", path="state/prewarm.db-wal",
                  skip=draw.randrange(40))  # fmt: skip
    hit = rounds.at_start("lost_state", fault, graph=_graph(draw), lose_state=True)
    assert published.isdisjoint(rounds.witness.builds()), "what was published was built again"
    return hit


def scan(rounds: Rounds, draw: random.Random) -> bool:
    """A scan in the foreground is killed, or the power goes."""
    action = draw.choice((Action.KILL_BEFORE, Action.KILL_AFTER, Action.CUT_AFTER))
    fault = Fault(action, skip=_skip(draw))
    return rounds.command("scan", fault, "scan", graph=_graph(draw))


def gc(rounds: Rounds, draw: random.Random) -> bool:
    """``prewarm gc`` is killed after a model has just gone."""
    action = draw.choice((Action.KILL_BEFORE, Action.KILL_AFTER, Action.CUT_AFTER))

    def leave(_: str) -> None:
        rounds.recover()
        rounds.arena.leave(draw.choice(sorted(rounds.arena.models)))
        rounds.recover()

    fault = Fault(action, skip=draw.randrange(CALLS_OF_GC))
    return rounds.command("gc", fault, "gc", prepare=leave)


def hook(rounds: Rounds, draw: random.Random) -> bool:
    """A hook is killed: what its directory points at is whole, and the next hook mends the rest."""
    arena = rounds.arena
    into = arena.private / "d"
    words = ("hook", "{model}", "--into", str(into), "--on-miss", "fail",
             "--interpreter", arena.interpreter)  # fmt: skip

    def next_hook(name: str) -> None:
        hooked_whole(arena, into)
        done = arena.prewarm(*(word.replace("{model}", name) for word in words))
        assert done.returncode == 0, done.stderr
        hooked_whole(arena, into, name=name)

    fault = Fault(draw.choice(_KILLS), skip=draw.randrange(CALLS_OF_HOOK))
    return rounds.command(
        "hook", fault, *words,
        graph=_own(draw), prepare=lambda _: rounds.recover(), then=next_hook,
    )  # fmt: skip


#: Each kind with how many of a hundred rounds it has.
KINDS: dict[Draw, int] = {
    daemon_any_time: 18,
    daemon_at_call: 24,
    power_cut: 12,
    child_any_time: 8,
    child_at_call: 6,
    pack_at_call: 4,
    lost_state: 4,
    scan: 4,
    gc: 4,
    hook: 6,
    failing_fsync: 3,
    full_disk: 4,
    failing_call: 3,
}

#: Those in which no process is killed.
NO_KILLS = ("failing_fsync", "full_disk", "failing_call")


def draw_round(rounds: Rounds, draw: random.Random) -> bool:
    """Make one round of a random kind; return whether the fault happened."""
    if draw.random() < 0.25 and len(rounds.arena.models) > 3:
        rounds.arena.leave(draw.choice(sorted(rounds.arena.models)))
    (kind,) = draw.choices(list(KINDS), weights=list(KINDS.values()))
    return kind(rounds, draw)


def _daemon(rounds: Rounds, draw: random.Random, kind: str, action: Action) -> bool:
    fault = Fault(action, skip=_skip(draw))
    run = draw.choice((rounds.at_start, rounds.while_it_runs))
    return run(kind, fault, graph=_graph(draw))


def _refusing(
    rounds: Rounds, draw: random.Random, kind: str, error: int, ops: dict[str, int]
) -> bool:
    op = draw.choice(list(ops))
    fault = Fault(
        Action.FAIL, op=op, skip=draw.randrange(ops[op]), error=error,
        times=draw.choice((1, 1, 4, 16)), roles=MAIN | PACK,
    )  # fmt: skip
    return rounds.while_it_runs(kind, fault, graph=_graph(draw))


def _skip(draw: random.Random) -> int:
    """Draw how many calls go well first; often a small number, since the first ones matter."""
    return draw.choice((draw.randrange(40), draw.randrange(CALLS_OF_START + CALLS_OF_BUILD)))


def _graph(draw: random.Random) -> str | None:
    """Let every second one have a graph of its own, so that the bundle there does not fit it."""
    return _own(draw) if draw.random() < 0.5 else None


def _own(draw: random.Random) -> str:
    return f"g{draw.randrange(1 << 40):010x}"
