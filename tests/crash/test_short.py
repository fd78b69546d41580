"""The short form: each kind of fault once, at a place where it does the most harm."""

from __future__ import annotations

import errno
from collections.abc import Callable

from .arena import Arena
from .hooked import hooked_whole
from .injector import CHILD, PACK, Action, Fault
from .rounds import Rounds
from .tally import Tally

BUNDLE = "cache/bundles/shaN/XX/X.tar.zst"
MANIFEST = "cache/manifests/test.json"
WAL = "state/prewarm.db-wal"


def test_each_kind_of_fault_loses_nothing(make_arena: Callable[..., Arena], tally: Tally) -> None:
    rounds = Rounds(make_arena(), tally)
    hits = {
        "a commit of the first start": rounds.at_start(
            "daemon_at_call", Fault(Action.KILL_TORN, op="write", path=WAL, skip=8)
        ),
        "the bundle is there, nothing else": rounds.while_it_runs(
            "daemon_at_call", Fault(Action.KILL_AFTER, op="rename", path=BUNDLE), graph="a"
        ),
        "the entry is warm, its manifest on its way": rounds.while_it_runs(
            "daemon_at_call", Fault(Action.KILL_BEFORE, op="rename", path=MANIFEST), graph="b"
        ),
        "power, just after the manifest": rounds.while_it_runs(
            "power_cut", Fault(Action.CUT_AFTER, op="fsync", path="cache/manifests"), graph="c"
        ),
        "a child that compiles": rounds.while_it_runs(
            "child_at_call", Fault(Action.KILL_TORN, op="write", skip=2, roles=CHILD), graph="d"
        ),
        "the packing": rounds.while_it_runs(
            "pack_at_call", Fault(Action.KILL_TORN, op="write", roles=PACK), graph="e"
        ),
        "a manifest that cannot be synced": rounds.while_it_runs(
            "failing_fsync",
            Fault(Action.FAIL, op="fsync", path="cache/manifests/#", error=errno.EIO),
        ),
        "any moment": rounds.kill_daemon("daemon_any_time", after_s=1.3, graph="f"),
    }
    assert all(hits.values()), hits
    rounds.finish()


def test_commands_that_are_killed_or_refused_lose_nothing(
    make_arena: Callable[..., Arena], tally: Tally
) -> None:
    arena = make_arena()
    rounds = Rounds(arena, tally)
    into = arena.private / "d"
    hook = ("hook", "{model}", "--into", str(into), "--on-miss", "fail",
            "--interpreter", arena.interpreter)  # fmt: skip

    def next_hook(name: str) -> None:
        hooked_whole(arena, into)
        done = arena.prewarm(*(word.replace("{model}", name) for word in hook))
        assert done.returncode == 0, done.stderr
        hooked_whole(arena, into, name=name)

    def leave(name: str) -> None:
        rounds.recover()
        arena.leave(name)
        rounds.recover()

    hits = {
        "a scan, in a commit": rounds.command(
            "scan", Fault(Action.KILL_TORN, op="write", path=WAL, skip=60), "scan"
        ),
        "a full disk for a bundle": rounds.command(
            "full_disk", Fault(Action.FAIL, op="mkdir", path="cache/bundles/*", error=errno.ENOSPC),
            "scan", graph="a",
        ),
        "a name that the disk refuses": rounds.command(
            "failing_call", Fault(Action.FAIL, op="rename", path=MANIFEST, error=errno.EIO),
            "scan", graph="b",
        ),
        "a hook, before it points at the new tree": rounds.command(
            "hook", Fault(Action.KILL_AFTER, op="rename", path="private/d/env.json"), *hook,
            prepare=lambda _: rounds.recover(), then=next_hook,
        ),
        "gc, at its first note": rounds.command(
            "gc", Fault(Action.KILL_BEFORE, op="rename", path="state/*.json"), "gc", prepare=leave
        ),
    }  # fmt: skip
    assert all(hits.values()), hits
    rounds.finish()
