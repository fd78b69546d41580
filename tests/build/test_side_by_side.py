"""The comparison runs every arm from what it should find, and changes nothing that is published."""

from __future__ import annotations

import json

import pytest

from prewarm.build.arms import Arm, ArmResult, SideBySide, Start
from prewarm.build.side_by_side import run_side_by_side
from prewarm.errors import PrewarmError


@pytest.fixture
def compared(shop) -> SideBySide:
    shop.model("m")
    shop.scan()
    before = shop.manifest()
    found = run_side_by_side(
        shop.settings, "m", repeats=2, report=shop.steps.append, stop=shop.stop
    )
    assert shop.manifest() == before
    assert list((shop.settings.state_dir / "work").glob("bench-*")) == []
    return found


def firsts(found: SideBySide, arm: Arm) -> list[float]:
    result = found.of(arm)
    assert result is not None
    return [start.first_s for start in result.starts]


def test_each_arm_finds_what_it_should(compared: SideBySide) -> None:
    assert [result.arm for result in compared.results] == list(Arm)
    # The fake answers by what it finds: nothing, a filled directory, a Mega-Cache, a hook's tree.
    assert firsts(compared, Arm.EAGER) == [0.1, 0.1]
    assert firsts(compared, Arm.COLD) == [20.0]
    assert firsts(compared, Arm.UPSTREAM_FIRST) == firsts(compared, Arm.UPSTREAM_SECOND) == [2, 2]
    assert firsts(compared, Arm.MEGA_CACHE) == [8.0, 8.0]
    assert firsts(compared, Arm.PREWARM) == [1.0, 1.0]
    ratios = compared.ratios()
    assert ratios["first_answer_cold"] == 20.0
    assert ratios["first_answer_upstream_first"] == 2.0
    assert ratios["first_answer_mega_cache"] == 8.0


def test_the_hook_counts_for_the_whole_start(compared: SideBySide) -> None:
    ours = compared.of(Arm.PREWARM)
    assert ours is not None
    for start in ours.starts:
        assert start.before_s > 0 and start.whole_s == pytest.approx(2.5 + start.before_s, abs=0.01)
    above = compared.ratios()["whole_start_above_eager_s"]
    assert above == pytest.approx(ours.median(lambda start: start.whole_s) - 1.6, abs=0.01)


def test_what_lies_on_disk_is_counted(compared: SideBySide) -> None:
    upstream, ours = compared.of(Arm.UPSTREAM_FIRST), compared.of(Arm.PREWARM)
    assert upstream is not None and (upstream.stored_bytes, upstream.files) == (500, 1)
    assert ours is not None and ours.stored_bytes is not None and ours.files is not None
    assert ours.unpacked_bytes is not None and ours.unpacked_bytes > ours.stored_bytes


def test_upstreams_directory_is_put_back_before_each_first_start(shop) -> None:
    shop.model("m", tell_found=str(shop.root / "found"))
    shop.scan()
    (shop.root / "found").write_text("")
    run_side_by_side(shop.settings, "m", repeats=2, report=shop.steps.append, stop=shop.stop)
    told = [json.loads(line) for line in (shop.root / "found").read_text().splitlines()]
    upstream = [one for one in told if one["cache"].endswith("/upstream/inductor")]
    # Cold finds nothing; then a first start finds what cold left, a second what the first left too.
    assert [one["files"] for one in upstream] == [0, 1, 2, 1, 2]


def test_without_artifacts_there_is_no_mega_cache(shop) -> None:
    shop.model("m", no_artifacts=True)
    shop.scan()
    found = run_side_by_side(
        shop.settings, "m", repeats=1, report=shop.steps.append, stop=shop.stop
    )
    assert found.of(Arm.MEGA_CACHE) is None
    assert found.ratios()["first_answer_mega_cache"] is None


def test_what_is_not_published_is_told_before_anything_is_started(shop) -> None:
    shop.model("m")
    with pytest.raises(PrewarmError, match=r"m: nothing to compare.*`prewarm scan m` first"):
        run_side_by_side(shop.settings, "m", report=shop.steps.append, stop=shop.stop)
    assert not [step for step in shop.steps if step.what == "bench"]


def test_the_command_prints_a_table_and_writes_json(shop) -> None:
    shop.model("m")
    shop.scan()
    output = shop.root / "m.json"
    registry = ("--registry", str(shop.settings.registry))
    code, told = shop.prewarm("bench", "m", "--repeats", "1", "-o", str(output), *registry)
    assert code == 0, told
    assert "m: warm, max-autotune" in shop.printed
    assert "20.0 times cold, 2.0 times upstream's warm directory" in shop.printed
    written = json.loads(output.read_text())
    assert written["ratios"]["first_answer_cold"] == 20.0
    assert [arm["arm"] for arm in written["arms"]] == [arm.value for arm in Arm]


def start(**changes: object) -> Start:
    values: dict[str, object] = {
        "before_s": 0.0, "import_s": 1.0, "build_s": 1.0, "first_s": 1.0, "second_s": 0.1,
        "others_s": (), "whole_s": 3.0, "steady_ms": 1.0, "counts": {"triton_compiled": 0},
    }  # fmt: skip
    return Start(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("counts", "told"),
    [((0, 3, 1), 3), ((0, None, 1), None), (("n/a", "n/a"), "n/a"), ((0, 0), 0)],
)
def test_the_greatest_count_is_told_and_what_was_not_watched_is_not_zero(
    counts: tuple[object, ...], told: object
) -> None:
    starts = tuple(start(counts={"triton_compiled": count}) for count in counts)
    assert ArmResult(Arm.PREWARM, starts).counted("triton_compiled") == told
