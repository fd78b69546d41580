"""The proof of a bundle: fresh processes that start from the packed file, in the orders it covers.

Owns which orders are run, where, and whether the shim's mends are made; what a child saw is judged
in ``verdict.py``. A plain start comes first. Where it is held back by something that the shim
carries to a deployment, the same is proven once more with the shim, and the entry says that it
needs it.
"""

from __future__ import annotations

import shutil
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
from prewarm.build.verdict import CARRYING_MENDS, SHIM_CARRIES, judge, warm_with_shim
from prewarm.store.bundle import unpack
from prewarm.store.status import Status
from prewarm.store.triton_groups import point_groups


def prove(
    bench: Bench,
    job: Job,
    built: Built,
    packed: Path,
    log: Path,
    *,
    each_first: bool,
    built_in: Path | None = None,
) -> Proven:
    """Run the proof from the packed bundle.

    With ``each_first`` also each other call first, once per bundle. ``built_in`` is where the cache
    lay at the build; it is removed before each start, since torch keeps that path in its graph
    entries and looks there for what was tuned: no deployment has it.

    Raises:
        ChildFailed: a child ended without an answer.
        StoreCorrupt: the packed bundle is damaged.
    """
    orders = _orders(job, built, each_first=each_first)
    run = _Run(bench, job, built, packed, log, orders, built_in)
    plain = run.plain()
    if isinstance(plain, Proven) and not _may_be_mended(plain):
        return plain
    mended = run.start(shim=True)
    if isinstance(plain, Proven) and not CARRYING_MENDS.intersection(mended.proofs[0]["mends"]):
        return plain
    verdict = mended.verdict
    if verdict.status is Status.WARM:
        verdict = warm_with_shim(plain.verdict.reason if isinstance(plain, Proven) else str(plain))
    return Proven(mended.proofs, verdict, needs_shim=True)


def _may_be_mended(plain: Proven) -> bool:
    """Tell whether the shim may carry what stands in a plain start's way.

    A child names what no count tells from another graph.
    """
    if plain.verdict.status is Status.WARM:
        return False
    return plain.verdict.code in SHIM_CARRIES or bool(plain.proofs[-1].get("unmended"))


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
    built_in: Path | None

    def plain(self) -> Proven | ChildFailed:
        """Start without mends; a child that fails for want of them is no last word."""
        try:
            return self.start(shim=False)
        except ChildFailed as error:
            # With fullgraph torch raises where it would have gone on in eager mode; and what it
            # tunes again on a GPU it writes to the build's path, which others may not write.
            limited = self.built.recompile_limit is not None
            tunes = self.job.declaration.model.device == "cuda"
            if error.code != "raised" or not (limited or tunes):
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
        if self.built_in is not None:
            shutil.rmtree(self.built_in, ignore_errors=True)
        with self.bench.workspace.directory("proof") as directory:
            cache = directory / "cache"
            unpack(
                self.packed, cache, sha256=built.bundle.sha256, size_bytes=built.bundle.size_bytes
            )
            point_groups(cache, cache)
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
