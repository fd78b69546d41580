"""The proof of a bundle: fresh processes that start from the packed file, in the orders it covers.

Owns which orders are run, where, and whether the shim's mends are made; what a child saw is judged
in ``verdict.py``. A plain start comes first. Where it is held back by something that the shim
carries to a deployment, the same is proven once more with the shim, and the entry says that it
needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prewarm.build.asking import ask_proof
from prewarm.build.bench import Bench
from prewarm.build.child import ChildFailed
from prewarm.build.job import Job
from prewarm.build.proof_user import proof_user
from prewarm.build.proven import Proven
from prewarm.build.record import Built
from prewarm.build.verdict import SHIM_CARRIES, judge, warm_with_shim
from prewarm.store.bundle import unpack
from prewarm.store.status import Status


def prove(
    bench: Bench, job: Job, built: Built, packed: Path, log: Path, *, each_first: bool
) -> Proven:
    """Run the proof from the packed bundle.

    With ``each_first`` also each other call first, once per bundle.

    Raises:
        ChildFailed: a child ended without an answer.
        StoreCorrupt: the packed bundle is damaged.
    """
    run = _Run(bench, job, built, packed, log, _orders(job, built, each_first=each_first))
    plain = run.plain()
    if isinstance(plain, Proven) and plain.verdict.code not in SHIM_CARRIES:
        return plain
    mended = run.start(shim=True)
    if isinstance(plain, Proven) and not mended.proofs[0]["mends"]:
        return plain
    verdict = mended.verdict
    if verdict.status is Status.WARM:
        verdict = warm_with_shim(plain.verdict.reason if isinstance(plain, Proven) else str(plain))
    return Proven(mended.proofs, verdict, needs_shim=True)


def _orders(job: Job, built: Built, *, each_first: bool) -> list[list[int]]:
    calls = job.declaration.calls()
    good = [
        number for number, call in enumerate(calls) if call.shape_set not in built.failed_shape_sets
    ]
    orders = [good]
    if each_first and job.declaration.compile.dynamic != "auto":
        orders += [[first, *(n for n in good if n != first)] for first in good[1:]]
    return orders


@dataclass(frozen=True, slots=True)
class _Run:
    bench: Bench
    job: Job
    built: Built
    packed: Path
    log: Path
    orders: Sequence[Sequence[int]]

    def plain(self) -> Proven | ChildFailed:
        """Start without mends; a child that fails for want of a higher limit is no last word."""
        try:
            return self.start(shim=False)
        except ChildFailed as error:
            # With fullgraph torch raises where it would have gone on in eager mode.
            if self.built.recompile_limit is None or error.code != "raised":
                raise
            return error

    def start(self, *, shim: bool) -> Proven:
        proofs: list[dict[str, Any]] = []
        for number, order in enumerate(self.orders):
            told = f"fresh process {number + 1} of {len(self.orders)}"
            self.bench.say(self.job, "prove", told + (" with the shim" if shim else ""))
            proofs.append(self._once(order, full=number == 0, shim=shim))
            if judge(proofs[-1:]).status is not Status.WARM:
                break
        return Proven(tuple(proofs), judge(proofs))

    def _once(self, order: Sequence[int], *, full: bool, shim: bool) -> dict[str, Any]:
        built = self.built
        with self.bench.workspace.directory("proof") as directory:
            cache = directory / "cache"
            unpack(
                self.packed, cache, sha256=built.bundle.sha256, size_bytes=built.bundle.size_bytes
            )
            desk = self.bench.desk(self.job, self.log)
            return ask_proof(
                desk,
                directory / "run",
                cache=cache,
                mode=built.mode,
                order=order,
                full=full,
                user=proof_user(self.bench.settings, desk, cache),
                recompile_limit=built.recompile_limit,
                shim=shim,
            )
