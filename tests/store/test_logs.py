from __future__ import annotations

import os
from pathlib import Path

import pytest

from prewarm.store.logs import logs_over


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    directory.mkdir()
    for second, name in enumerate(("old", "middle", "new")):
        (directory / name).write_bytes(bytes(100))
        os.utime(directory / name, (second, second))
    return directory


@pytest.mark.parametrize(
    ("limit_bytes", "names"),
    [(0, []), (300, []), (299, ["old"]), (200, ["old"]), (1, ["old", "middle", "new"])],
)
def test_the_oldest_go_until_the_rest_fits(logs: Path, limit_bytes: int, names: list[str]) -> None:
    assert [log.path.name for log in logs_over(logs, limit_bytes=limit_bytes)] == names


def test_a_log_of_work_stays_whatever_it_takes(logs: Path) -> None:
    found = logs_over(logs, limit_bytes=1, busy=[logs / "old", logs / "new"])
    assert [log.path.name for log in found] == ["middle"]


def test_no_directory_and_what_is_no_file_is_nothing(logs: Path, tmp_path: Path) -> None:
    assert logs_over(tmp_path / "nowhere", limit_bytes=1) == ()
    (logs / "link").symlink_to("/dev/null")
    (logs / "folder").mkdir()
    assert len(logs_over(logs, limit_bytes=1)) == 3
