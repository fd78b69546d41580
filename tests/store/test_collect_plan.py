"""What goes from a cache_dir: decided from facts alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from prewarm.store.collect_plan import Bounds, BundleFacts, Plan, Use, plan

NOW_S = 1_000_000.0
GRACE_S = 1000.0


def bundle(
    digit: str,
    *,
    size_bytes: int = 100,
    published_s: float = 0.0,
    unnamed_s: float | None = None,
    others: bool = False,
    is_read: bool = False,
    marked_s: float = 0.0,
) -> BundleFacts:
    path = Path("/cache") / digit
    return BundleFacts(digit, path, size_bytes, published_s, unnamed_s, others, is_read, marked_s)


def used(used_s: float = 0.0, *, model: str = "m", is_worked_with: bool = False) -> Use:
    return Use((model,), used_s, is_worked_with)


def planned(bundles: list[BundleFacts], uses: dict[str, Use], **bounds: float) -> Plan:
    limits = Bounds(GRACE_S, int(bounds.get("limit", 0)), bounds.get("unused", 0.0))
    return plan(bundles, uses, limits, now_s=NOW_S)


def evicted(found: Plan) -> list[str]:
    return [going.bundle.sha256 for going in found.evicted]


def removed(found: Plan) -> list[str]:
    return [going.bundle.sha256 for going in found.removed]


def test_without_bounds_what_is_named_stays() -> None:
    found = planned([bundle("a"), bundle("b", others=True)], {"a": used()})
    assert found == Plan(stays_bytes=200)


def test_what_is_unnamed_goes_after_its_grace_period_unless_it_is_needed() -> None:
    over = NOW_S - GRACE_S
    found = planned(
        [
            bundle("a", unnamed_s=over),
            bundle("b", unnamed_s=over + 1),
            bundle("c", unnamed_s=over, is_read=True),
            bundle("d", unnamed_s=over),
        ],
        {"d": used(is_worked_with=True)},
    )
    assert removed(found) == ["a"]
    assert [one.sha256 for one in found.waiting] == ["b", "c", "d"]
    assert found.stays_bytes == 0


def test_over_the_limit_the_least_recently_used_leave_until_the_rest_fits() -> None:
    bundles = [bundle(digit) for digit in "abcd"]
    uses = {"a": used(30), "b": used(10), "c": used(40), "d": used(20)}
    found = planned(bundles, uses, limit=250)
    assert evicted(found) == ["b", "d"]
    assert {going.code for going in found.evicted} == {"evicted"}
    assert "under the limit of 250 bytes (cache_limit_bytes)" in found.evicted[0].why
    assert (found.stays_bytes, found.problem) == (200, None)
    assert evicted(planned(bundles, uses, limit=400)) == []


@pytest.mark.parametrize("trace", ["published_s", "marked_s", "proof or report"])
def test_each_trace_of_a_use_counts_and_the_latest_decides(trace: str) -> None:
    latest = NOW_S - GRACE_S - 1
    first = bundle("a") if trace == "proof or report" else bundle("a", **{trace: latest})  # type: ignore[arg-type]
    uses = {"a": used(latest if trace == "proof or report" else 0), "b": used(5)}
    assert evicted(planned([first, bundle("b")], uses, limit=100)) == ["b"]


def test_what_is_on_its_way_out_makes_room_too() -> None:
    bundles = [bundle("a"), bundle("b"), bundle("c", unnamed_s=NOW_S)]
    uses = {"a": used(), "b": used()}
    assert evicted(planned(bundles, uses, limit=200)) == []


@pytest.mark.parametrize(
    ("first", "use"),
    [
        (bundle("a", others=True), used()),
        (bundle("a", is_read=True), used()),
        (bundle("a"), used(is_worked_with=True)),
        (bundle("a"), used(NOW_S - GRACE_S + 1)),
        (bundle("a", published_s=NOW_S), used()),
        (bundle("a", marked_s=NOW_S), used()),
        (bundle("a"), Use()),
        (bundle("a"), None),
    ],
    ids=["others", "read", "work", "proven", "new", "started", "not ours", "unknown"],
)
def test_what_is_in_use_stays_over_the_limit_and_that_is_told(
    first: BundleFacts, use: Use | None
) -> None:
    found = planned([first], {} if use is None else {"a": use}, limit=50, unused=1)
    assert (evicted(found), found.stays_bytes) == ([], 100)
    assert found.problem is not None
    assert "bundles take 100 bytes, over the limit of 50 (cache_limit_bytes)" in found.problem
    assert "all are in use" in found.problem


def test_what_was_not_used_for_long_leaves_without_a_limit() -> None:
    bundles = [bundle("a"), bundle("b")]
    uses = {"a": used(NOW_S - 200_000), "b": used(NOW_S - 199_999)}
    found = planned(bundles, uses, unused=200_000)
    assert evicted(found) == ["a"]
    assert found.evicted[0].code == "unused"
    assert found.evicted[0].why == "its bundle was not used for 2.31 days (unused_s)"


def test_of_equals_the_larger_leaves_so_that_fewer_do() -> None:
    bundles = [bundle("a", size_bytes=10), bundle("b", size_bytes=500)]
    found = planned(bundles, {"a": used(), "b": used()}, limit=100)
    assert evicted(found) == ["b"]
