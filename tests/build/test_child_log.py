"""A child's log stays within its bound while it is written, and the child never waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from prewarm.build.child_log import LIMIT_BYTES, TAIL_LINES, BoundedFile, ChildLog

Wait = Callable[[Callable[[], bool]], None]


def small(path: Path) -> BoundedFile:
    return BoundedFile(path, head_bytes=100, tail_bytes=100)


def lines(first: int, last: int) -> list[bytes]:
    return [b"line %04d\n" % number for number in range(first, last)]


def written(path: Path, first: int, last: int) -> list[bytes]:
    file = small(path)
    for line in lines(first, last):
        file.write(line)
        assert path.stat().st_size <= 100 + 2 * 100 + 50
    file.close()
    return path.read_bytes().splitlines(keepends=True)


def left_out(text: list[bytes]) -> int:
    [note] = [line for line in text if line.startswith(b"==")]
    return int(note.split()[1].replace(b",", b""))


# -- the file


def test_a_short_log_is_kept_whole(tmp_path: Path) -> None:
    assert written(tmp_path / "log", 0, 30) == lines(0, 30)


def test_a_long_log_keeps_its_begin_its_end_and_how_much_is_gone(tmp_path: Path) -> None:
    text = written(tmp_path / "log", 0, 9_000)
    assert text[:10] == lines(0, 10)
    kept = text[11:]
    assert kept == lines(9_000 - len(kept), 9_000)
    assert len(kept) >= 9
    assert left_out(text) == 10 * (9_000 - 10 - len(kept))


def test_the_next_child_goes_on_in_the_same_log(tmp_path: Path) -> None:
    written(tmp_path / "log", 0, 5)
    written(tmp_path / "log", 5, 500)
    text = written(tmp_path / "log", 500, 1_000)
    assert text[:10] == lines(0, 10)
    assert text[-1] == b"line 0999\n"
    assert left_out(text) + sum(map(len, text[:10] + text[11:])) == 10 * 1_000


@pytest.mark.parametrize("size_bytes", [250, 350, 5_000])
def test_one_line_without_an_end_is_cut_too(tmp_path: Path, size_bytes: int) -> None:
    file = small(tmp_path / "log")
    for _ in range(3):
        file.write(b"x" * size_bytes)
    file.close()
    text = (tmp_path / "log").read_bytes()
    assert len(text) <= 350
    assert text.startswith(b"x" * 99)
    assert text.endswith(b"x" * 99)


def test_what_the_disk_does_not_take_is_left_out_and_nothing_raises(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full, pytest.raises(OSError, match="No space"):
        os.write(full.fileno(), b"x")
    log = tmp_path / "log"
    log.symlink_to("/dev/full")
    file = small(log)
    for line in lines(0, 100):
        file.write(line)
    file.close()


# -- the pipe


def run(log: ChildLog, code: str) -> int:
    """Run a child to its end with the log as its standard error."""
    child = subprocess.Popen([sys.executable, "-S", "-c", code], stderr=log.writer)
    log.begin()
    return child.wait(timeout=60)


def test_a_child_that_writes_far_more_than_is_kept_never_waits(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for n in range(20): sys.stderr.write(f'{n:04} ' + 'x' * 1_000_000 + '\\n')\n"
        "sys.stderr.write('the end\\n')"
    )
    with ChildLog(tmp_path / "log") as log:
        assert run(log, code) == 0
    assert log.tail()[-1] == "the end"
    assert 2_000_000 < (tmp_path / "log").stat().st_size <= LIMIT_BYTES
    assert (tmp_path / "log").read_bytes().startswith(b"0000 x")


def test_it_is_there_while_the_child_writes(tmp_path: Path, wait_until: Wait) -> None:
    code = "import sys; print('begun', file=sys.stderr, flush=True); input()"
    with ChildLog(tmp_path / "log") as log:
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stderr=log.writer
        )
        log.begin()
        wait_until(lambda: (tmp_path / "log").read_text() == "begun\n")
        child.communicate(b"\n", timeout=60)


def test_the_tail_is_this_childs_alone(tmp_path: Path) -> None:
    for word in ("first", "second"):
        with ChildLog(tmp_path / "log") as log:
            run(log, f"import sys; print('{word}', file=sys.stderr)")
        assert log.tail() == (word,)
    assert (tmp_path / "log").read_text() == "first\nsecond\n"


def test_the_tail_is_the_last_lines_and_a_progress_bar_is_lines_too(tmp_path: Path) -> None:
    code = "import sys; sys.stderr.write('\\r'.join(f'{n}%' for n in range(101)) + '\\n\\n')"
    with ChildLog(tmp_path / "log") as log:
        run(log, code)
    assert log.tail() == tuple(f"{n}%" for n in range(101 - TAIL_LINES, 101))


def test_who_stays_behind_with_the_pipe_is_not_waited_for(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "stays = 'import time\\nprint(\"here\", flush=True)\\ntime.sleep(3600)'\n"
        "child = subprocess.Popen([sys.executable, '-S', '-c', stays], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, file=sys.stderr)"
    )
    with ChildLog(tmp_path / "log") as log:
        assert run(log, code) == 0
    os.kill(int(log.tail()[-1]), 9)


def test_a_child_that_could_not_be_started_leaves_nothing_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError), ChildLog(tmp_path / "log") as log:
        subprocess.Popen(["/nowhere/python"], stderr=log.writer)
    assert len(os.listdir("/proc/self/fd")) == before
