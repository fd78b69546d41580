"""Rounds: one fault each, in a place that goes on from round to round.

Owns how a fault is brought about and what is checked when: a checkpoint arrives, one fault happens
to the daemon (or a command) meanwhile, checks, then the work without faults to its end, and checks
again. Which faults there are is ``kinds.py``'s and ``points.py``'s.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import psutil

from .arena import WAIT_S, Arena
from .checks import Witness
from .injector import CUTS, MAIN, Action, Fault
from .tally import Tally

#: What an entry may be called after a fault of its surroundings, and for a killed child.
SURROUNDINGS = frozenset({"no_space", "not_writable"})
OF_CHILD = frozenset({"killed", "pack_failed"})

#: A round has this long to be hit; one whose fault lies too far ends with the work.
HIT_S = 25.0


class Rounds:
    """Goes on in one arena, counting in ``tally`` what really happened."""

    def __init__(self, arena: Arena, tally: Tally, *, seed: int = 0) -> None:
        self.arena, self.tally = arena, tally
        self.witness = Witness(arena)
        self._seed = seed
        self._number = 0
        self._judged = 0
        self._allowed: frozenset[str] = frozenset()
        self._refused: str | None = None

    # -- one round each

    def at_start(
        self,
        kind: str,
        fault: Fault,
        *,
        graph: str | None = None,
        and_stop: bool = False,
        lose_state: bool = False,
    ) -> bool:
        """Let a fault happen to a daemon from its start on; return whether it did.

        With ``and_stop`` the daemon is ended as a service manager does where all work was done;
        with ``lose_state`` it starts with an empty state, but for its key.
        """
        with self._round(kind, fault) as name:
            self.arena.kill()
            if lose_state:
                self.arena.lose_state()
                self.witness.state_is_lost()
                self._judged = 0
            self.arena.injector.arm(fault)
            self._arrive(name, graph)
            self.arena.start()
            self._until_over(fault)
            if and_stop and not self.arena.injector.fired:
                self.arena.injector.arm(fault)
                assert self.arena.end() in (0, 1, -9)
            elif not _kills_daemon(fault):
                arena = self.arena
                arena.until(lambda: not arena.alive or arena.has_looked(), "an end or a first look")
                if not arena.alive:
                    self._require_told_end()
            return self._count(kind)

    def while_it_runs(self, kind: str, fault: Fault, *, graph: str | None = None) -> bool:
        """Let a fault happen while the daemon runs, which lives on unless it is killed itself."""
        with self._round(kind, fault) as name:
            if not self.arena.alive:
                self.arena.start()
                self._recover()
            self.arena.injector.arm(fault)
            self._arrive(name, graph)
            self._until_over(fault)
            if not _kills_daemon(fault):
                assert self.arena.alive, "the daemon ended for a fault that is not its own"
            return self._count(kind)

    def kill_daemon(self, kind: str, *, after_s: float, graph: str | None = None) -> bool:
        """Kill a daemon so long after its start, in which a checkpoint arrives."""
        with self._round(kind, f"after {after_s:.3f} s") as name:
            self.arena.kill()
            self._arrive(name, graph)
            self.arena.start()
            pause(after_s)
            self.arena.kill()
            self.tally.count(kind)
            return True

    def kill_child(
        self, kind: str, *, which: int, after_s: float, graph: str | None = None
    ) -> bool:
        """Kill the n-th child that is seen, so long after it came."""
        with self._round(kind, f"child {which} after {after_s:.3f} s") as name:
            self._allowed = OF_CHILD
            if not self.arena.alive:
                self.arena.start()
            self._arrive(name, graph)
            seen: set[int] = set()
            ends_s = time.monotonic() + HIT_S
            while time.monotonic() < ends_s and not self.arena.is_quiet():
                for child in self.arena.helpers():
                    seen.add(child.pid)
                    if len(seen) > which:
                        pause(after_s)
                        with contextlib.suppress(psutil.Error):
                            child.kill()
                            self.tally.count(kind)
                            return True
                time.sleep(0.002)
            return False

    def command(
        self,
        kind: str,
        fault: Fault,
        *words: str,
        graph: str | None = None,
        prepare: Callable[[str], None] | None = None,
        then: Callable[[str], None] | None = None,
    ) -> bool:
        """Let a fault happen to a command, while no daemon runs; ``{model}`` is the one arrived."""
        with self._round(kind, fault) as name:
            self._arrive(name, graph)
            if prepare is not None:
                prepare(name)
            self.arena.kill()
            self.arena.injector.arm(fault)
            process = self.arena.spawn(*(word.replace("{model}", name) for word in words))
            code = process.wait(WAIT_S)
            self.arena.injector.disarm()
            allowed = (0, 1) if fault.action is Action.FAIL else (0, -9)
            assert code in allowed, f"{words[0]} ended with {code}"
            if then is not None:
                then(name)
            return self._count(kind)

    def recover(self) -> None:
        """Go on without faults until nothing is left to do."""
        self.arena.injector.disarm()
        self._recover()

    def finish(self) -> None:
        """End the daemon and see that a scan finds nothing left to do."""
        arena, witness = self.arena, self.witness
        if arena.alive:
            assert arena.end() == 0, arena.told()
        witness.look_at_rest()
        path = arena.cache_dir / "manifests" / "test.json"
        before, builds = path.read_bytes(), witness.builds()
        done = arena.prewarm("scan")
        assert done.returncode == 0, done.stdout + done.stderr
        assert witness.builds() == builds, "a scan after the end built something"
        assert path.read_bytes() == before, "a scan after the end published something new"
        witness.look_at_rest()

    # -- the frame of a round

    @contextlib.contextmanager
    def _round(self, kind: str, what: object) -> Iterator[str]:
        """Name the round's checkpoint; check after the fault and at rest; say what failed."""
        self._number += 1
        self._allowed = frozenset()
        if isinstance(what, Fault) and not _kills_daemon(what):
            fails = what.action is Action.FAIL
            self._allowed = SURROUNDINGS if fails else OF_CHILD
            self._refused = what.op if fails else None
        try:
            yield f"m{self._number}"
            self.arena.injector.disarm()
            self.witness.look()
            self._recover()
            self._rest()
            self._judge()
        except BaseException as error:
            error.add_note(
                f"seed {self._seed}, round {self._number}: {kind}: {what}\n{self.arena.told()}"
            )
            raise

    def _recover(self) -> None:
        arena = self.arena
        if not arena.alive:
            arena.start()
        ends_s = time.monotonic() + WAIT_S
        while not arena.is_quiet():
            assert time.monotonic() < ends_s, "the work did not end"
            assert arena.alive, "the daemon ended without a fault"
            self._word_for_what_failed()
            self.witness.watch()
            time.sleep(0.02)

    def _rest(self) -> None:
        """Look at what is left; scratch that could not be removed goes at the next start."""
        if self._refused in ("", "unlink", "rmdir") and self.arena.alive:
            assert self.arena.end() == 0
            self._recover()
        self._refused = None
        self.witness.look_at_rest()

    def _judge(self) -> None:
        """A kill of the builder is no failure of an entry; a killed child is, and may be tried."""
        failures = self.witness.failures()
        wrong = [told for told in failures[self._judged :] if told[1] not in self._allowed]
        self._judged = len(failures)
        assert not wrong, f"counted as failures of entries: {wrong}"

    def _word_for_what_failed(self) -> None:
        """Spare the pause before the next try, which must be there: a person's word is as good."""
        failed = [row for row in self.arena.rows().values() if row.status == "failed"]
        for row in failed:
            assert row.next_try_at, f"{row.model} is given up: {row.reason}"
        if failed:
            done = self.arena.prewarm("retry")
            assert done.returncode == 0, done.stderr
            self.arena.stir()

    def _arrive(self, name: str, graph: str | None) -> None:
        """Without a graph of its own a checkpoint shares the bundle that is there."""
        self.arena.arrive(name, graph=graph or "g")

    def _count(self, kind: str) -> bool:
        hit = self.arena.injector.fired > 0
        if hit:
            self.tally.count(kind)
        return hit

    def _until_over(self, fault: Fault) -> None:
        """Wait until the daemon is dead, all faults have happened, or nothing is left to do."""
        ends_s = time.monotonic() + HIT_S
        injector, dead = self.arena.injector, _kills_daemon(fault)
        while self.arena.alive and time.monotonic() < ends_s:
            if injector.exhausted and not dead:
                break
            # Who is hit by a kill is dead in a moment; nobody looks at its files meanwhile.
            if not injector.fired and self.arena.is_quiet():
                break
            time.sleep(0.005)
        injector.disarm()
        pause(0.05)  # for a call that is on its way
        if dead and injector.fired and self.arena.daemon is not None:
            self.arena.daemon.wait(HIT_S)

    def _require_told_end(self) -> None:
        """A daemon that could not start for a fault says so in one line; later it lives on."""
        assert self.arena.daemon is not None
        assert self.arena.daemon.returncode == 1, self.arena.daemon.returncode
        last = self.arena.log.read_text().rpartition("--- ")[2]
        assert "Traceback" not in last and "internal error" not in last, "it was not thought of"
        assert '"started"' not in last, "the service ended for a fault that is not its own"


def pause(seconds: float) -> None:
    """Let time pass: when a process is killed is what a round is about."""
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        time.sleep(0.002)


def _kills_daemon(fault: Fault) -> bool:
    return fault.action in CUTS or (fault.action is not Action.FAIL and fault.roles == MAIN)
