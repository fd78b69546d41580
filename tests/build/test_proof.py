"""A plain start is proven first; what the shim carries is proven with it, and the entry says so."""

from __future__ import annotations

import pytest

from prewarm.store.status import Status

LIMIT = {"limits_hit": 2}


def test_a_plain_start_that_is_clean_needs_no_shim(shop) -> None:
    shop.model("m", mends=["recompile_limit"])
    shop.scan()
    (entry,) = shop.manifest()["entries"]
    assert (entry["status"], entry["requires"], entry["code"]) == ("warm", [], None)
    assert entry["compile"]["recompile_limit"] is None


def test_what_the_shim_carries_is_warm_with_it_alone(shop) -> None:
    shop.model("m", report=LIMIT, mends=["recompile_limit"])
    assert shop.scan().all_warm
    (entry,) = shop.manifest()["entries"]
    assert (entry["status"], entry["requires"], entry["code"]) == ("warm", ["shim"], "needs_shim")
    assert "with the shim alone" in entry["reason"] and "limit was hit 2" in entry["reason"]
    assert entry["proof"]["limits_hit"] == 0
    assert entry["covers"] == "any order"


@pytest.mark.parametrize("mends", [[], ["collector", "guard_timing"]])
def test_a_shim_that_had_nothing_to_mend_makes_nothing_warm(shop, mends: list[str]) -> None:
    shop.model("m", report=LIMIT, shim_report={}, mends=mends)
    shop.scan()
    entry = shop.entry("m")
    assert (entry.status, entry.code) == (Status.PARTIAL, "recompile_limit")
    assert entry.record["requires"] == []


def test_what_the_shim_does_not_carry_is_not_tried_with_it(shop) -> None:
    shop.model("m", report={"aot_bypassed": 1}, mends=["recompile_limit"])
    shop.scan()
    assert shop.entry("m").code == "aot_bypass"
    assert not [step for step in shop.steps if "with the shim" in step.detail]


def test_what_looks_like_another_graph_for_want_of_the_shim_is_tried_with_it(shop) -> None:
    shop.model(
        "m",
        report={"graphs_compiled": 1, "fx_misses": 1},
        unmended=["precompiled_headers"],
        mends=["precompiled_headers"],
    )
    assert shop.scan().all_warm
    (entry,) = shop.manifest()["entries"]
    assert (entry["requires"], entry["code"]) == (["shim"], "needs_shim")


def test_a_start_with_the_shim_that_is_not_clean_either_says_what_is_left(shop) -> None:
    shop.model("m", report=LIMIT, shim_report={"aot_bypassed": 1}, mends=["recompile_limit"])
    shop.scan()
    entry = shop.entry("m")
    assert (entry.status, entry.code) == (Status.PARTIAL, "aot_bypass")


def test_a_sharer_needs_the_shim_too(shop) -> None:
    for name in ("a", "b"):
        shop.model(name, name.encode(), report=LIMIT, mends=["recompile_limit"])
    shop.scan()
    entries = shop.manifest()["entries"]
    assert [entry["requires"] for entry in entries] == [["shim"], ["shim"]]
    assert len({entry["bundle"]["sha256"] for entry in entries}) == 1
    assert shop.builds("b") == []


def test_what_lies_where_it_was_built_warms_no_proof(shop) -> None:
    shop.model("m", keeps_place=True, mends=["retuning"])
    shop.scan()
    entry = shop.entry("m")
    assert (entry.status, entry.code) == (Status.PARTIAL, "retuned")


@pytest.mark.parametrize(
    "field", ["benchmarked_autotuning", "benchmarked_coordinate_descent", "triton_compiled"]
)
def test_tuning_and_tuned_kernels_are_what_the_shim_carries(shop, field: str) -> None:
    shop.model("m", report={field: 3}, mends=["retuning"])
    assert shop.scan().all_warm
    assert shop.manifest()["entries"][0]["requires"] == ["shim"]
