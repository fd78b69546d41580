"""A cgroup (version 2) for each child: the kernel limits its memory, holds it still and ends it.

Owns where they may be made. That is below a cgroup that was delegated to the service (systemd's
``Delegate=``; no systemd at all, in a container), never elsewhere: the rest of the tree is the
service manager's. Where there is none, ``process_group.py`` and looking at the processes remain.

- A cgroup whose children are limited holds no process itself, so the service moves into a cgroup
  of its own below it, unless it is there.
- Where the memory controller was not delegated, cgroups are still of use for all but memory.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from prewarm.build.own_cgroup import VERSION_2, OwnCgroup, own_cgroup

#: The cgroup of the service itself, where it had to move aside.
DAEMON = "prewarm"
#: Where systemd says that it runs this machine.
SYSTEMD = Path("/run/systemd/system")
#: The kernel freezes and ends at once; a process in the middle of its disk takes a while.
WAIT_S = 5.0
_LOOK_S = 0.002


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The cgroup of one child."""

    directory: Path
    limits_memory: bool

    def add(self, pid: int) -> bool:
        """Move a process here, with whoever it started meanwhile; tell whether that went."""
        try:
            self._write("cgroup.procs", str(pid))
        except OSError:
            return False
        for child in _children(pid):
            with contextlib.suppress(OSError):
                self._write("cgroup.procs", str(child))
        return True

    def hold_still(self) -> None:
        """Freeze everybody in it; return once all hold still."""
        self._write("cgroup.freeze", "1")
        _wait(lambda: "frozen 1" in self._read("cgroup.events"))

    def go_on(self) -> None:
        """Let everybody in it go on."""
        self._write("cgroup.freeze", "0")

    def ran_out_of_memory(self) -> bool:
        """Tell whether the kernel ended somebody in it for the memory limit."""
        words = self._read("memory.events").split()
        counts = dict(zip(words[::2], words[1::2], strict=False))
        return self.limits_memory and int(counts.get("oom_kill", 0)) > 0

    def end(self) -> None:
        """End everybody who is left in it, and remove it."""
        with contextlib.suppress(OSError):
            self._write("cgroup.kill", "1")
        _wait(self._removed)

    def _removed(self) -> bool:
        # What a child made below it, such as a container engine's, goes first.
        inner = sorted((path for path in self.directory.rglob("*") if path.is_dir()), reverse=True)
        for directory in (*inner, self.directory):
            with contextlib.suppress(OSError):
                directory.rmdir()
        return not self.directory.exists()

    def _write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)

    def _read(self, name: str) -> str:
        try:
            return (self.directory / name).read_text()
        except OSError:
            return ""


@dataclass(frozen=True, slots=True)
class Cgroups:
    """A delegated cgroup, in which one is made for each child."""

    parent: Path
    limits_memory: bool

    def new(self, memory_bytes: int) -> Cgroup | None:
        """Make one with a limit; None where the kernel does not let us any more."""
        directory = self.parent / f"prewarm-{os.getpid()}-{secrets.token_hex(8)}"
        try:
            directory.mkdir()
            made = Cgroup(directory, self.limits_memory)
            if self.limits_memory:
                (directory / "memory.max").write_text(str(memory_bytes))
                (directory / "memory.oom.group").write_text("1")
                with contextlib.suppress(OSError):  # no such file without swap accounting
                    (directory / "memory.swap.max").write_text("0")
        except OSError:
            with contextlib.suppress(OSError):
                directory.rmdir()
            return None
        return made

    def clear(self) -> None:
        """End and remove what a service left here that was killed."""
        for directory in self.parent.glob("prewarm-*-*"):
            pid = directory.name.split("-")[1]
            if pid.isdecimal() and not psutil.pid_exists(int(pid)):
                Cgroup(directory, self.limits_memory).end()


@dataclass(frozen=True, slots=True)
class Delegation:
    """What children are kept in: cgroups, or None of them, and the words for the log."""

    cgroups: Cgroups | None
    told: str


def delegated_cgroup() -> OwnCgroup | str:
    """Return the cgroup that is this process's to divide, or why there is none. Changes nothing."""
    own = own_cgroup(VERSION_2)
    if own is None:
        return "no cgroups of version 2 are mounted here"
    for directory in list(own.upwards())[:2]:
        if _is_delegated(directory):
            return OwnCgroup(directory, own.top)
    if not SYSTEMD.exists() and os.access(own.directory, os.W_OK):
        return own
    return "no cgroup was delegated to this process (systemd: Delegate=memory)"


def open_cgroups() -> Delegation:
    """Make the delegated cgroup ready for children; moves this process aside where it must."""
    found = delegated_cgroup()
    if isinstance(found, str):
        return Delegation(None, f"in process groups, their memory looked at: {found}")
    probe = Cgroups(found.directory, limits_memory=False).new(0)
    if probe is None or not (probe.directory / "cgroup.kill").exists():
        if probe is not None:
            probe.directory.rmdir()
        return Delegation(None, "in process groups, their memory looked at: no cgroup can be made")
    probe.directory.rmdir()
    problem = _delegate_memory(found.directory)
    cgroups = Cgroups(found.directory, limits_memory=problem is None)
    cgroups.clear()
    told = "in cgroups of their own"
    return Delegation(
        cgroups, told if problem is None else f"{told}, their memory looked at: {problem}"
    )


def _is_delegated(directory: Path) -> bool:
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(directory, name) == b"1":
                return True
    # systemd gives the files of a delegated cgroup to the user of the service, and no others.
    if os.geteuid() == 0:
        return False
    return all(os.access(path, os.W_OK) for path in (directory, directory / "cgroup.procs"))


def _delegate_memory(directory: Path) -> str | None:
    """Let children have a memory limit; return why that is not possible."""
    if "memory" not in _words(directory / "cgroup.controllers"):
        return "the memory controller was not delegated"
    if "memory" in _words(directory / "cgroup.subtree_control"):
        return None
    daemon = directory / DAEMON
    moved = own_cgroup(VERSION_2)
    # The very root may hold processes beside cgroups that are limited; it has no such file.
    move = moved is not None and moved.directory == directory
    move = move and (directory / "cgroup.type").exists()
    try:
        if move:
            daemon.mkdir(exist_ok=True)
            (daemon / "cgroup.procs").write_text(str(os.getpid()))
        (directory / "cgroup.subtree_control").write_text("+memory")
    except OSError as error:
        if move:
            with contextlib.suppress(OSError):
                (directory / "cgroup.procs").write_text(str(os.getpid()))
                daemon.rmdir()
        return f"the memory controller cannot be handed on ({error.strerror})"
    return None


def _children(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def _wait(done: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + WAIT_S
    while not done() and time.monotonic() < ends_s:
        time.sleep(_LOOK_S)
