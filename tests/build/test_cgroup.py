"""A child in a cgroup: held still, limited and ended by the kernel, with all that it started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from prewarm.build import cgroup as module
from prewarm.build.cgroup import Cgroup, Cgroups, Delegation, delegated_cgroup, open_cgroups
from prewarm.build.child import ChildFailed, ChildSpec, run_child
from prewarm.build.own_cgroup import OwnCgroup

Wait = Callable[[Callable[[], bool]], None]


@pytest.fixture(scope="module")
def opened() -> Delegation:
    """Cgroups for children of this very process, where the machine lets it have them."""
    kept = open_cgroups()
    if kept.cgroups is None:
        pytest.skip(f"children are kept {kept.told}")
    return kept


@pytest.fixture
def cgroups(opened: Delegation) -> Iterator[Cgroups]:
    assert opened.cgroups is not None
    yield opened.cgroups
    assert list(opened.cgroups.parent.glob(f"prewarm-{os.getpid()}-*")) == []


@pytest.fixture
def made(cgroups: Cgroups) -> Iterator[Cgroup]:
    one = cgroups.new(1 << 30)
    assert one is not None
    yield one
    one.end()


def runner(*, detached: bool = False) -> subprocess.Popen[bytes]:
    """Start a process that starts another one, and ignores being told to end."""
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if len(sys.argv) < 2: subprocess.Popen([sys.executable, '-c', open('/proc/self/cmdline')"
        f".read().split('\\0')[2], 'more'], env={{}}, start_new_session={detached})\n"
        "time.sleep(600)\n"
    )
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True)


def pids(one: Cgroup) -> list[int]:
    return [int(pid) for pid in (one.directory / "cgroup.procs").read_text().split()]


def gone(pid: int) -> bool:
    """Say whether a process runs no more, reaped or not."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_whoever_is_in_it_is_ended_also_without_a_trace_of_its_parent(
    made: Cgroup, wait_until: Wait
) -> None:
    child = runner(detached=True)
    made.add(child.pid)
    wait_until(lambda: len(pids(made)) == 2)
    everybody = pids(made)
    made.end()
    child.wait()
    assert all(gone(pid) for pid in everybody)
    assert not made.directory.exists()


def test_one_that_was_started_before_its_parent_was_moved_is_moved_too(
    made: Cgroup, wait_until: Wait
) -> None:
    child = runner()
    wait_until(lambda: len(psutil.Process(child.pid).children()) == 1)
    made.add(child.pid)
    assert len(pids(made)) == 2
    made.end()
    child.wait()


def test_it_holds_still_and_goes_on(made: Cgroup, tmp_path: Path, wait_until: Wait) -> None:
    file = tmp_path / "counts"
    code = f"file = open({str(file)!r}, 'w')\nwhile True: print('on', file=file, flush=True)"
    child = subprocess.Popen([sys.executable, "-c", code])
    made.add(child.pid)
    wait_until(lambda: file.exists() and file.stat().st_size > 0)
    made.hold_still()
    assert "frozen 1" in (made.directory / "cgroup.events").read_text()
    size = file.stat().st_size
    made.go_on()
    wait_until(lambda: file.stat().st_size > size)
    made.hold_still()
    made.end()
    assert child.wait() == -9


def child_of(tmp_path: Path, code: str, cgroups: Cgroups, memory_bytes: int) -> ChildSpec:
    package = tmp_path / "copy" / "prewarm_torchside"
    package.mkdir(parents=True)
    (package / "__main__.py").write_text(code)
    return ChildSpec(
        interpreter=(sys.executable,),
        copy=tmp_path / "copy",
        workdir=tmp_path / "work",
        log=tmp_path / "log",
        environ=dict(os.environ),
        timeout_s=60.0,
        memory_bytes=memory_bytes,
        cgroups=cgroups,
    )


def test_a_child_runs_in_one_and_leaves_nothing(tmp_path: Path, cgroups: Cgroups) -> None:
    code = (
        "import json, subprocess, sys\n"
        "code = 'import time, signal; signal.signal(15, signal.SIG_IGN); time.sleep(600)'\n"
        "own = [line for line in open('/proc/self/cgroup') if line.startswith('0::')][0].strip()\n"
        "one = subprocess.Popen([sys.executable, '-c', code], env={}, start_new_session=True)\n"
        "print(json.dumps({'answer': {'own': own, 'other': one.pid}}), flush=True)\n"
    )
    answer = run_child(child_of(tmp_path, code, cgroups, 1 << 30), {})
    assert "/prewarm-" in answer["own"]
    assert gone(answer["other"])


@pytest.mark.parametrize("in_a_grandchild", [False, True])
def test_the_kernel_keeps_the_memory_limit(
    tmp_path: Path, opened: Delegation, cgroups: Cgroups, in_a_grandchild: bool
) -> None:
    if not cgroups.limits_memory:
        pytest.skip(f"children are kept {opened.told}")
    code = "held = []\nwhile True: held.append(bytearray(b'x') * (8 << 20))\n"
    if in_a_grandchild:
        code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {code!r}])\n"
        code += "import time; time.sleep(600)\n"
    with pytest.raises(ChildFailed, match=r"more memory than the 0\.1 GiB .* the kernel") as caught:
        run_child(child_of(tmp_path, code, cgroups, 100 << 20), {})
    assert caught.value.code == "memory_limit"


def test_what_a_killed_service_left_is_ended_and_removed(cgroups: Cgroups) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = cgroups.parent / f"prewarm-{dead.pid}-0123"
    left.mkdir()
    child = runner()
    Cgroup(left, limits_memory=False).add(child.pid)
    mine = cgroups.new(1 << 30)
    assert mine is not None
    cgroups.clear()
    assert child.wait() == -9
    assert not left.exists()
    assert mine.directory.exists()
    mine.end()


# -- where they may be made


def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, systemd: bool) -> Path:
    unit = tmp_path / "cgroup" / "unit"
    (unit / "daemon").mkdir(parents=True)
    found = OwnCgroup(unit / "daemon", tmp_path / "cgroup")
    monkeypatch.setattr(module, "own_cgroup", lambda _: found)
    monkeypatch.setattr(module, "SYSTEMD", tmp_path if systemd else tmp_path / "none")
    return unit


def test_a_cgroup_that_systemd_did_not_delegate_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(tmp_path, monkeypatch, systemd=True)
    monkeypatch.setattr(module.os, "geteuid", lambda: 0)
    assert "Delegate=memory" in str(delegated_cgroup())
    kept = open_cgroups()
    assert kept.cgroups is None
    assert kept.told.startswith(
        "in process groups, their memory looked at: no cgroup was delegated"
    )


def test_the_delegated_one_is_found_by_its_mark_also_from_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = own(tmp_path, monkeypatch, systemd=True)
    monkeypatch.setattr(module.os, "geteuid", lambda: 0)
    os.setxattr(unit, "user.delegate", b"1")
    found = delegated_cgroup()
    assert isinstance(found, OwnCgroup)
    assert found.directory == unit


def test_without_systemd_the_own_cgroup_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = own(tmp_path, monkeypatch, systemd=False)
    found = delegated_cgroup()
    assert isinstance(found, OwnCgroup)
    assert found.directory == unit / "daemon"
    # These directories are no cgroups, which shows once one is made.
    assert "no cgroup can be made" in open_cgroups().told
