"""The record of a published entry is a manifest entry, and a shared bundle's is read back whole."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from prewarm.build.job import Job
from prewarm.build.proven import Proven
from prewarm.build.record import (
    Built,
    calls_of_record,
    covers,
    failed_of_record,
    make_record,
    renamed,
)
from prewarm.build.verdict import Verdict
from prewarm.environment import Environment
from prewarm.registry.checkpoint import Checkpoint
from prewarm.registry.declaration import Declaration
from prewarm.store.bundle import BundleInfo
from prewarm.store.manifest_reading import Reading
from prewarm.store.manifest_values import ManifestEntry
from prewarm.store.status import Status

AT = "2027-01-15T08:00:00.000Z"
ORIGIN = {"declared": {"key": "k"}, "source_files": None}
WARM = Verdict(Status.WARM, None, None)
CALLS = [
    {"shape_set": "rows", "sizes": {"batch": 1, "seq": 8}, "cold_s": 10.0, "compiled_frames": 1,
     "graphs": 1, "graph_breaks": [], "compiled_ms": 1.0, "eager_ms": 2.0},
    {"shape_set": "rows", "sizes": {"batch": 2, "seq": 8}, "cold_s": 11.0, "compiled_frames": 1,
     "graphs": 2, "graph_breaks": ["a print"], "compiled_ms": None, "eager_ms": None},
    {"shape_set": "more", "sizes": {}},
]  # fmt: skip


def job(dynamic: bool | str = False) -> Job:
    table = SimpleNamespace(mode=["max-autotune", "default"], dynamic=dynamic)
    return Job(
        entry_id=1,
        model="m",
        checkpoint=Checkpoint("m", Path("m"), (), (), 0.0),
        declaration=cast(Declaration, SimpleNamespace(compile=table)),
        environment=Environment.from_facts({"torch": "2.13"}),
        digest="a" * 64,
        architecture="b" * 64,
    )


def built(**changes: Any) -> Built:
    fields: dict[str, Any] = {
        "key": "c" * 64,
        "bundle": BundleInfo("d" * 64, 10, 20, 3),
        "mode": "max-autotune",
        "recompile_limit": None,
        "variables": {"OMP_NUM_THREADS": "2"},
        "calls": CALLS,
        "failed_shape_sets": {"more": "ValueError: no"},
    }
    return Built(**{**fields, **changes})


def proof() -> dict[str, Any]:
    # Proofs may run in another order and write sizes in another.
    warm = [({"seq": 8, "batch": 2}, 0.2), ({"seq": 8, "batch": 1}, 0.1)]
    return {
        "calls": [{"shape_set": "rows", "sizes": s, "warm_s": t} for s, t in warm],
        "report": {"fx_misses": 0, "triton_compiled": "n/a", "recompiles": None},
        "outputs": {"state": "agree"},
        "uid": 65534,
        "mends": [],
        "python": "3.11.7",
    }


def record(verdict: Verdict = WARM, **changes: Any) -> dict[str, Any]:
    return make_record(
        job(), built(**changes), Proven((proof(), proof()), verdict), at=AT, origin=ORIGIN
    )


def test_it_is_a_manifest_entry() -> None:
    reading = Reading()
    entry = ManifestEntry.read({**record(), "model": "m", "aliases": []}, "entry", reading)
    reading.refuse()
    assert entry.bundle.sha256 == "d" * 64
    assert (entry.compile.mode, entry.compile.asked_mode) == ("max-autotune", "max-autotune")


def test_each_call_has_its_warm_seconds_whatever_the_order_of_the_proof() -> None:
    rows = record()["shape_sets"][0]
    assert [(call["cold_s"], call["warm_s"]) for call in rows["calls"]] == [
        (10.0, 0.1),
        (11.0, 0.2),
    ]
    assert rows["calls"][1]["graph_breaks"] == ["a print"]


def test_a_failed_shape_set_says_so_and_the_others_do_not() -> None:
    rows, more = record(Verdict(Status.PARTIAL, "shape_set_failed", "more failed"))["shape_sets"]
    assert (rows["status"], more["status"]) == ("warm", "failed")
    assert rows["reason"] is None
    assert more["reason"] == "ValueError: no"
    assert more["calls"][0]["cold_s"] is None


def test_a_shape_set_beside_a_failed_one_is_no_better_than_the_mode_that_it_fell_to() -> None:
    verdict = Verdict(Status.PARTIAL, "shape_set_failed", "more failed")
    rows, _ = record(verdict, mode="default")["shape_sets"]
    assert rows["status"] == "partial"


def test_the_proof_is_the_report_with_who_proved_it_when() -> None:
    told = record()["proof"]
    assert told["orders"] == 2
    assert (told["fx_misses"], told["triton_compiled"], told["recompiles"]) == (0, "n/a", None)
    assert (told["declared"], told["source_files"]) == ({"key": "k"}, None)
    assert (told["proved_at"], told["proved_as"], told["python"]) == (AT, "65534", "3.11.7")


def test_what_a_second_checkpoint_needs_is_read_back() -> None:
    first = record()
    calls, failed = calls_of_record(first), failed_of_record(first)
    assert failed == {"more": "ValueError: no"}
    assert [(c["shape_set"], c["sizes"], c.get("cold_s")) for c in calls] == [
        (c["shape_set"], c["sizes"], c.get("cold_s")) for c in CALLS
    ]
    assert record(calls=calls, failed_shape_sets=failed) == first


@pytest.mark.parametrize(
    ("dynamic", "order"),
    [(False, "any order"), (True, "any order"), ("auto", "declared order")],
)
def test_auto_covers_the_declared_order_alone(dynamic: bool | str, order: str) -> None:
    assert covers(job(dynamic)) == order


def test_who_shares_a_bundle_tells_of_it_under_its_own_names() -> None:
    told = renamed(record(), ["lines", "lines", "further"])
    assert told is not None
    assert failed_of_record(told) == {"further": "ValueError: no"}
    assert [call["shape_set"] for call in calls_of_record(told)] == ["lines", "lines", "further"]
    assert renamed(record(), ["lines"]) is None


def test_a_proof_that_is_not_clean_covers_no_other_order() -> None:
    assert record()["covers"] == "declared order"  # its recompiles could not be watched
