"""What an entry's manifest record says, put together from a build and its proof.

Pure (design.md §6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prewarm.build.caveat import caveat_of_record
from prewarm.build.job import Job
from prewarm.build.proven import Proven
from prewarm.build.verdict import Verdict, judge
from prewarm.store.bundle import BundleInfo
from prewarm.store.status import Status

#: What a proof covers that was made, or came out clean, in no other order.
DECLARED_ORDER = "declared order"


@dataclass(frozen=True, slots=True)
class Built:
    """What is known of a bundle beside its proof.

    ``calls`` are in the declared order, with their figures; ``caveat`` is what a clean proof is
    worth if not simply warm (``caveat.py``).
    """

    key: str
    bundle: BundleInfo
    mode: str
    recompile_limit: int | None
    variables: Mapping[str, str]
    calls: Sequence[Mapping[str, Any]]
    failed_shape_sets: Mapping[str, str]
    caveat: Verdict | None = None


def built_of_record(record: Mapping[str, Any], job: Job, *, key: str) -> Built | None:
    """Return what a record says of its bundle, for a job that starts from it.

    None for a record of other calls.
    """
    source = renamed(record, [call.shape_set for call in job.declaration.calls()])
    if source is None:
        return None
    failed = failed_of_record(source)
    return Built(
        key=key,
        bundle=BundleInfo(**source["bundle"]),
        mode=source["compile"]["mode"],
        recompile_limit=job.recompile_limit,
        variables=source["variables"],
        calls=calls_of_record(source),
        failed_shape_sets=failed,
        caveat=caveat_of_record(source, failed),
    )


def make_record(
    job: Job, built: Built, proven: Proven, *, at: str, origin: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the manifest entry of a published entry, less its model and aliases.

    ``origin`` is what is recorded of where the build came from (``origin.py``).
    """
    verdict, proof = proven.verdict, proven.proofs[0]
    warm = {(call["shape_set"], _frozen(call["sizes"])): call["warm_s"] for call in proof["calls"]}
    return {
        "checkpoint": job.digest,
        "architecture": job.architecture,
        "environment": job.environment.id,
        "build_key": built.key,
        "status": verdict.status.value,
        "reason": verdict.reason,
        "code": verdict.code,
        "requires": list(proven.requires),
        "covers": covers(job) if judge(proven.proofs).status is Status.WARM else DECLARED_ORDER,
        "bundle": {
            "sha256": built.bundle.sha256,
            "size_bytes": built.bundle.size_bytes,
            "unpacked_bytes": built.bundle.unpacked_bytes,
            "files": built.bundle.files,
        },
        "compile": {
            "mode": built.mode,
            "asked_mode": job.modes[0],
            "dynamic": job.declaration.compile.dynamic,
            "recompile_limit": built.recompile_limit if proven.needs_shim else None,
        },
        "variables": dict(built.variables),
        "shape_sets": [
            _shape_set(name, built, warm, verdict, job.modes[0]) for name in _names(built.calls)
        ],
        "proof": {
            **proof["report"],
            "outputs": proof["outputs"],
            "orders": len(proven.proofs),
            "proved_at": at,
            "proved_as": str(proof["uid"]),
            "python": proof["python"],
            "deep": proof.get("deep"),
            **origin,
        },
    }


def covers(job: Job) -> str:
    """Say which orders of the declared calls a clean proof covers."""
    return DECLARED_ORDER if job.declaration.compile.dynamic == "auto" else "any order"


def _shape_set(
    name: str, built: Built, warm: Mapping[Any, float], verdict: Verdict, asked_mode: str
) -> dict[str, Any]:
    status, reason = verdict.status, verdict.reason
    if name in built.failed_shape_sets:
        status, reason = Status.FAILED, built.failed_shape_sets[name]
    elif verdict.code == "shape_set_failed" and built.mode == asked_mode:
        # Only a clean proof of the others gets this caveat: what failed does not hold them back.
        status, reason = Status.WARM, None
    calls = [call for call in built.calls if call["shape_set"] == name]
    return {
        "name": name,
        "status": status.value,
        "reason": reason,
        "calls": [
            {
                "sizes": call["sizes"],
                "cold_s": call.get("cold_s"),
                "warm_s": warm.get((name, _frozen(call["sizes"]))),
                "eager_ms": call.get("eager_ms"),
                "compiled_ms": call.get("compiled_ms"),
                "graphs": call.get("graphs"),
                "graph_breaks": call.get("graph_breaks", []),
            }
            for call in calls
        ],
    }


def calls_of_record(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a record's calls as a build gives them."""
    return [
        {"shape_set": shape_set["name"], **call}
        for shape_set in record["shape_sets"]
        for call in shape_set["calls"]
    ]


def failed_of_record(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the shape sets that failed in a record's build, with their reasons."""
    return {
        shape_set["name"]: shape_set["reason"]
        for shape_set in record["shape_sets"]
        if shape_set["status"] == "failed"
    }


def renamed(record: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any] | None:
    """Return a record with its shape sets under the names of who shares its bundle.

    ``names`` has one name for each declared call, in order. Equal build keys have equal calls in
    equal order, and only names may differ; None for a record of other calls.
    """
    if len(names) != len(calls_of_record(record)):
        return None
    shape_sets, start = [], 0
    for shape_set in record["shape_sets"]:
        shape_sets.append({**shape_set, "name": names[start]})
        start += len(shape_set["calls"])
    return {**record, "shape_sets": shape_sets}


def _names(calls: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(call["shape_set"] for call in calls))


def _frozen(sizes: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(sizes.items()))
