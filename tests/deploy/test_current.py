"""The current tree: switched by rename, and older ones removed when nobody uses them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

import pytest

from prewarm.deploy import current
from prewarm.deploy.current import KEEP_S, point_at, remove_unused, write_changed
from prewarm.errors import NotWritable

OLD, NEW = "a" * 32, "b" * 32


@pytest.fixture
def into(tmp_path: Path) -> Path:
    for name in (OLD, NEW):
        (tmp_path / name / "shim").mkdir(parents=True)
        (tmp_path / name / "inductor").mkdir()
    return tmp_path


def test_the_three_are_pointed_at_the_tree(into: Path) -> None:
    point_at(into / OLD, env=b"A=1\n", env_json=b"{}")
    point_at(into / NEW, env=b"A=2\n", env_json=b"{2}")

    assert (into / "shim").readlink() == Path(NEW) / "shim"
    assert (into / "env").read_bytes() == b"A=2\n"
    assert (into / "env.json").read_bytes() == b"{2}"
    assert not list(into.glob(".shim-*"))


def test_what_is_right_is_not_written(into: Path) -> None:
    point_at(into / NEW, env=b"A=2\n", env_json=b"{}")
    before = {path: path.lstat().st_ino for path in into.iterdir()}

    point_at(into / NEW, env=b"A=2\n", env_json=b"{}")

    assert {path: path.lstat().st_ino for path in into.iterdir()} == before


def test_start_reports_have_a_place_and_are_left_alone(into: Path) -> None:
    point_at(into / OLD, env=b"", env_json=b"{}")
    assert (into / "reports").stat().st_mode & 0o777 == 0o755
    (into / "reports" / "1-1").mkdir()

    point_at(into / NEW, env=b"", env_json=b"{}")
    remove_unused(into / NEW, now_s=time.time() + 2 * KEEP_S)

    assert (into / "reports" / "1-1").is_dir()


def test_a_wrong_mode_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_bytes(b"A=1\n")
    path.chmod(0o600)

    write_changed(path, b"A=1\n")

    assert path.stat().st_mode & 0o777 == 0o644


def test_a_directory_in_the_place_of_the_link_is_told(into: Path) -> None:
    (into / "shim").mkdir()

    with pytest.raises(NotWritable, match="is a directory of somebody else"):
        point_at(into / NEW, env=b"", env_json=b"")


def test_an_old_tree_goes_after_its_time_and_a_young_one_stays(into: Path) -> None:
    assert remove_unused(into / NEW, now_s=time.time()) == ()
    assert remove_unused(into / NEW, now_s=time.time() + KEEP_S + 9) == (into / OLD,)
    assert sorted(path.name for path in into.iterdir()) == [NEW]


def test_a_tree_that_was_left_just_now_is_young(into: Path) -> None:
    os.utime(into / OLD, (0, 0))
    point_at(into / OLD, env=b"", env_json=b"")
    point_at(into / NEW, env=b"", env_json=b"")

    assert remove_unused(into / NEW, now_s=time.time()) == ()


def test_an_old_tree_stays_while_a_process_was_started_with_it(into: Path) -> None:
    environ = {"TORCHINDUCTOR_CACHE_DIR": str(into / OLD / "inductor")}
    server = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with server:
        assert server.stdout is not None
        server.stdout.readline()
        assert remove_unused(into / NEW, now_s=time.time() + KEEP_S + 9) == ()
        server.communicate(b"\n")
    assert remove_unused(into / NEW, now_s=time.time() + KEEP_S + 9) == (into / OLD,)


def test_other_directories_are_nobody_s_business(into: Path) -> None:
    (into / "data").mkdir()
    os.utime(into / "data", (0, 0))

    remove_unused(into / NEW, now_s=time.time())

    assert (into / "data").is_dir()


def test_an_old_tree_stays_for_a_process_that_sees_it_under_another_path(into: Path) -> None:
    environ = {"TRITON_CACHE_DIR": f"/mounted/elsewhere/{OLD}/triton"}
    server = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with server:
        assert server.stdout is not None
        server.stdout.readline()
        assert remove_unused(into / NEW, now_s=time.time() + KEEP_S + 9) == ()
        server.communicate(b"\n")


def test_what_looks_like_a_tree_and_cannot_be_looked_at_stays(into: Path) -> None:
    (into / ("c" * 32)).symlink_to("nowhere")

    remove_unused(into / NEW, now_s=time.time())

    assert (into / ("c" * 32)).is_symlink()


def test_a_foreign_link_is_replaced_and_what_it_names_is_not_touched(
    into: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    theirs = tmp_path_factory.mktemp("theirs")
    os.utime(theirs, (5, 5))
    (into / "shim").symlink_to(theirs)
    root_s = Path("/").stat().st_mtime

    point_at(into / NEW, env=b"", env_json=b"")

    assert (into / "shim").readlink() == Path(NEW) / "shim"
    assert theirs.stat().st_mtime == 5
    assert Path("/").stat().st_mtime == root_s


def test_killed_at_any_line_leaves_a_link_and_whole_files(into: Path) -> None:
    """The next hook mends what a killed one left between two of the three."""
    point_at(into / OLD, env=b"A=1\n", env_json=b"{1}")
    line, killed = 0, True
    while killed:
        line += 1
        child = os.fork()
        if child == 0:
            try:
                kill_before_line(line)
                point_at(into / NEW, env=b"A=2\n", env_json=b"{2}")
            finally:
                os._exit(0)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        assert (into / "env").read_bytes() in (b"A=1\n", b"A=2\n")
        assert (into / "env.json").read_bytes() in (b"{1}", b"{2}")
        assert (into / "shim").is_dir()
        point_at(into / OLD, env=b"A=1\n", env_json=b"{1}")
        assert (into / "shim").readlink() == Path(OLD) / "shim"
    assert line > 10


def kill_before_line(line: int) -> None:
    seen = 0

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal seen
        if frame.f_code.co_filename != current.__file__:
            return None
        if event == "line":
            seen += 1
            if seen == line:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)  # type: ignore[arg-type]


def test_what_a_killed_hook_left_on_its_way_is_removed_once_it_is_old(into: Path) -> None:
    old = [into / ".prewarm-00.part", into / ".shim-00"]
    young = [into / ".prewarm-11.part", into / ".shim-11"]
    for part, link in (old, young):
        part.touch()
        link.symlink_to(f"{OLD}/shim")
    now_s = time.time()
    for path in old:
        os.utime(path, (now_s - 7200, now_s - 7200), follow_symlinks=False)

    remove_unused(into / NEW, now_s=now_s)

    assert not any(os.path.lexists(path) for path in old)
    assert all(os.path.lexists(path) for path in young)
