"""The proof of a bundle: fresh processes that start from the packed file, in the orders it covers.

Owns which orders are run and where; what a child saw is judged in ``verdict.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prewarm.build.asking import ask_proof
from prewarm.build.bench import Bench
from prewarm.build.job import Job
from prewarm.build.proof_user import proof_user
from prewarm.build.record import Built
from prewarm.build.verdict import judge
from prewarm.store.bundle import unpack
from prewarm.store.status import Status


def prove(
    bench: Bench, job: Job, built: Built, packed: Path, log: Path, *, each_first: bool
) -> list[dict[str, Any]]:
    """Run the proof from the packed bundle.

    With ``each_first`` also each other call first, once per bundle.
    """
    calls = job.declaration.calls()
    good = [
        number for number, call in enumerate(calls) if call.shape_set not in built.failed_shape_sets
    ]
    orders = [good]
    if each_first and job.declaration.compile.dynamic != "auto":
        orders += [[first, *(n for n in good if n != first)] for first in good[1:]]
    proofs = []
    for number, order in enumerate(orders):
        bench.say(job, "prove", f"fresh process {number + 1} of {len(orders)}")
        proof = _prove_once(bench, job, built, packed, log, order=order, full=number == 0)
        proofs.append(proof)
        if judge([proof]).status is not Status.WARM:
            break
    return proofs


def _prove_once(
    bench: Bench,
    job: Job,
    built: Built,
    packed: Path,
    log: Path,
    *,
    order: Sequence[int],
    full: bool,
) -> dict[str, Any]:
    with bench.workspace.directory("proof") as directory:
        cache = directory / "cache"
        unpack(packed, cache, sha256=built.bundle.sha256, size_bytes=built.bundle.size_bytes)
        desk = bench.desk(job, log)
        user = proof_user(bench.settings, desk, cache)
        return ask_proof(
            desk, directory / "run", cache=cache, mode=built.mode, order=order, full=full, user=user
        )
