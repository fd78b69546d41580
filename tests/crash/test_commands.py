"""A hook and ``gc`` that are ended at each of their calls, one after the other.

A hook's directory is never half where ``env.json`` points, and the next hook makes the rest right;
``gc`` takes no bundle that a manifest names, and the next one takes what is to go.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .arena import Arena
from .checks import Witness
from .hooked import hooked_whole, leftovers
from .injector import Action, Fault
from .tally import Tally

MOST_CALLS = 1000

#: Every how many calls the command is ended: few times in each run, and then nearly everywhere.
FEW, MANY, GC = 61, 2, 5

nightly = (pytest.mark.nightly, pytest.mark.timeout(2 * 3600))
in_every_run = pytest.mark.parametrize("stride", [FEW, pytest.param(MANY, marks=nightly)])


@pytest.fixture
def arena(make_arena: Callable[..., Arena]) -> Arena:
    """A place with two models of a bundle each."""
    arena = make_arena()
    arena.arrive("one", graph="one")
    arena.arrive("two", graph="two")
    done = arena.prewarm("scan")
    assert done.returncode == 0, done.stderr
    return arena


def ended_at_each_call(
    arena: Arena, stride: int, *words: str, action: Action, **more: int
) -> Iterator[int]:
    """Run a command that is hit at its n-th call, for each n up to its last."""
    for skip in range(0, MOST_CALLS, stride):
        arena.injector.arm(Fault(action, skip=skip, **more))
        process = arena.spawn(*words)
        code = process.wait(60)
        arena.injector.disarm()
        if not arena.injector.fired:
            assert code == 0, arena.told()
            assert skip > 20, "the library did not reach it"
            return
        assert code == -9 or (action is Action.FAIL and code in (0, 1, 3)), (code, arena.told())
        yield skip


def hook_of(arena: Arena, model: str, into: Path) -> tuple[str, ...]:
    return ("hook", model, "--into", str(into), "--on-miss", "fail",
            "--interpreter", arena.interpreter)  # fmt: skip


@in_every_run
@pytest.mark.parametrize(
    "action",
    [Action.KILL_TORN, pytest.param(Action.FAIL, marks=nightly)],
    ids=["kill", "full disk"],
)
def test_a_hook_that_fills_and_points_its_directory_anew(
    arena: Arena, tally: Tally, stride: int, action: Action
) -> None:
    into = arena.private / "d"
    first, second = hook_of(arena, "one", into), hook_of(arena, "two", into)
    for skip in ended_at_each_call(arena, stride, *second, action=action, error=errno.ENOSPC):
        tally.count(f"hook_{action.name.lower()}")
        hooked_whole(arena, into)
        for words, model in ((second, "two"), (first, "one")):
            done = arena.prewarm(*words)
            assert done.returncode == 0, (skip, done.stderr)
            hooked_whole(arena, into, name=model)
        # What was on its way looks an hour old by now.
        assert not leftovers(into), skip
        # The next one fills again.
        shutil.rmtree(into / _not_current(into))


@in_every_run
def test_a_hook_that_mends_a_damaged_tree(arena: Arena, tally: Tally, stride: int) -> None:
    into = arena.private / "d"
    words = hook_of(arena, "one", into)
    assert arena.prewarm(*words).returncode == 0

    def damage() -> None:
        (tree,) = into.glob("?" * 32)
        (tree / "inductor" / "bulk").write_bytes(b"damaged")
        (tree / "inductor" / "kernel" / "one-kernel").unlink()

    damage()
    for skip in ended_at_each_call(arena, stride, *words, action=Action.KILL_TORN):
        tally.count("hook_mending")
        done = arena.prewarm(*words)
        assert done.returncode == 0, (skip, done.stderr)
        hooked_whole(arena, into, name="one")
        damage()


@pytest.mark.nightly
@pytest.mark.timeout(2 * 3600)
@pytest.mark.parametrize("stride", [GC])
@pytest.mark.parametrize("action", [Action.KILL_AFTER, Action.CUT_AFTER], ids=["kill", "power"])
def test_gc_takes_what_is_to_go_and_nothing_else(
    arena: Arena, tally: Tally, stride: int, action: Action
) -> None:
    arena.leave("two")
    done = arena.prewarm("scan")
    assert done.returncode == 0, done.stderr
    kept = arena.root / "kept"
    for name in ("state", "cache"):
        shutil.copytree(arena.root / name, kept / name)
    arena.grace_s = 0.0
    for _ in ended_at_each_call(arena, stride, "gc", action=action):
        tally.count("gc_at_call")
        Witness(arena, collects=True).look()
        done = arena.prewarm("gc")
        assert done.returncode == 0, done.stderr
        bundles = list((arena.cache_dir / "bundles").rglob("*.zst"))
        assert len(bundles) == 1, "one is named, the other went"
        Witness(arena, collects=True).look()
        for name in ("state", "cache"):
            shutil.rmtree(arena.root / name)
            shutil.copytree(kept / name, arena.root / name)


def _not_current(into: Path) -> str:
    """Return the name of the tree that is not pointed at."""
    current = (into / "shim").readlink().parts[0]
    (name,) = {path.name for path in into.glob("?" * 32)} - {current}
    return name
