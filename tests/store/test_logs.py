from __future__ import annotations

import os
from pathlib import Path

import pytest

from prewarm.store.logs import LogFile, earlier_logs, listed_logs, log_of, logs_going

AT = "2027-01-15T08:00:00.000Z"
WEEK_S = 7 * 86_400.0
LOGS = tuple(
    LogFile(Path("/logs") / name, 100, second)
    for second, name in enumerate(("old", "middle", "new"))
)


def going(
    limit_bytes: int = 0,
    *,
    logs: tuple[LogFile, ...] = LOGS,
    named: tuple[str, ...] = ("old", "middle", "new"),
    busy: tuple[str, ...] = (),
    now_s: float = 10.0,
) -> list[tuple[str, str]]:
    found = logs_going(logs, named=named, busy=busy, limit_bytes=limit_bytes, now_s=now_s)
    return [(log.path.name, log.why) for log in found]


@pytest.mark.parametrize(
    ("limit_bytes", "names"),
    [(0, []), (300, []), (299, ["old"]), (200, ["old"]), (1, ["old", "middle", "new"])],
)
def test_the_oldest_go_until_the_rest_fits(limit_bytes: int, names: list[str]) -> None:
    why = "over logs_limit_bytes, the oldest"
    assert going(limit_bytes) == [(name, why) for name in names]


def test_a_log_of_work_stays_whatever_it_takes() -> None:
    assert [name for name, _ in going(1, busy=("old", "new"))] == ["middle"]


def test_a_log_that_nobody_names_goes_and_makes_room_for_the_others() -> None:
    why = "its build is not known any more"
    assert going(named=("old", "new")) == [("middle", why)]
    assert going(200, named=("old", "new")) == [("middle", why)]


def test_a_probe_that_led_to_nothing_is_kept_for_a_week() -> None:
    logs = (LogFile(Path("/logs/probe-x.log"), 1, 0.0),)
    assert going(logs=logs, named=(), now_s=WEEK_S - 1) == []
    assert [name for name, _ in going(logs=logs, named=(), now_s=WEEK_S + 1)] == ["probe-x.log"]


def test_what_is_listed_is_files_oldest_first(tmp_path: Path) -> None:
    assert listed_logs(tmp_path / "nowhere") == ()
    for name, second in (("b", 2), ("a", 3), ("c", 1)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (second, second))
    (tmp_path / "link").symlink_to("/dev/null")
    (tmp_path / "folder").mkdir()
    assert [log.path.name for log in listed_logs(tmp_path)] == ["c", "b", "a"]


# -- names


def test_a_log_is_named_for_its_model_in_one_folder(tmp_path: Path) -> None:
    names = {
        log_of(tmp_path, model, environment, AT)
        for model in ("a/b", "a%2Fb", "a_b", "../../a")
        for environment in ("e1", "")
    }
    assert len(names) == 8
    assert {path.parent for path in names} == {tmp_path}


def test_a_very_long_name_has_a_log_of_its_own(tmp_path: Path) -> None:
    logs = [log_of(tmp_path, "é" * 300 + end, "e" * 16, AT) for end in ("1", "2")]
    assert logs[0] != logs[1]
    assert all(len(os.fsencode(log.name)) < 255 for log in logs)


def test_earlier_logs_are_those_of_the_same_entry(tmp_path: Path) -> None:
    def log(model: str, second: int) -> Path:
        path = log_of(tmp_path, model, "e", f"2027-01-15T08:00:0{second}.000Z")
        path.touch()
        return path

    first, second, third = (log("m", number) for number in (1, 2, 3))
    log("m-2", 1)
    (tmp_path / "m-e.log").touch()  # of an earlier version
    assert earlier_logs(third) == (first, second)
    assert earlier_logs(first) == ()
