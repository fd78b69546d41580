"""One prewarm at a time; the lock dies with its holder, and says who holds it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from prewarm.build.lock import LOCK_NAME, state_lock
from prewarm.errors import LockHeld, NotWritable

_HOLDER = """
import sys
from pathlib import Path
from prewarm.build.lock import state_lock
with state_lock(Path(sys.argv[1]), what="prewarm scan", at="2027-01-15T08:00:00.000Z"):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_by_another(state_dir: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(state_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_the_second_is_told_who_holds_it(tmp_path: Path) -> None:
    with held_by_another(tmp_path) as holder:
        with pytest.raises(LockHeld) as caught, state_lock(tmp_path, what="me", at="now"):
            raise AssertionError("two hold the lock")
        told = f"prewarm scan (pid {holder.pid}, since 2027-01-15T08:00:00.000Z) holds"
        assert told in str(caught.value)


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    with held_by_another(tmp_path) as holder:
        holder.kill()
        holder.wait()
        with state_lock(tmp_path, what="me", at="now"):
            assert '"me"' in (tmp_path / LOCK_NAME).read_text()


def test_it_can_be_held_again_and_again(tmp_path: Path) -> None:
    for what in ("a long word for the first holder", "b"):
        with state_lock(tmp_path / "made", what=what, at="now"):
            assert f'"{what}"' in (tmp_path / "made" / LOCK_NAME).read_text()


def test_a_holder_that_wrote_rubbish_is_another_prewarm(tmp_path: Path) -> None:
    with held_by_another(tmp_path):
        (tmp_path / LOCK_NAME).write_text("[]")
        with (
            pytest.raises(LockHeld, match=r"^another prewarm holds"),
            state_lock(tmp_path, what="me", at="now"),
        ):
            raise AssertionError("two hold the lock")


def test_a_state_dir_below_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(NotWritable, match="--state-dir"),
        state_lock(tmp_path / "file" / "state", what="me", at="now"),
    ):
        raise AssertionError("no lock can be there")
