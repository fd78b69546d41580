"""By which method a registry can be watched, and why: inotify, or polling where that cannot work.

Owns the reading of the kernel's limits and the words for the choice. Starts nothing but one inotify
instance that it closes again; imports no watchdog, since ``doctor`` asks too.
"""

from __future__ import annotations

import ctypes
import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prewarm.file_system import mount_points_below, network_file_system, read_mount_table

_SYSCTL = Path("/proc/sys")

#: Seconds between two listings of the whole tree where inotify cannot work.
POLL_S = 5.0

#: The limits of one user's watches and instances; containers have one of their own besides.
_WATCHES = ("fs.inotify.max_user_watches", "user.max_inotify_watches")
_INSTANCES = ("fs.inotify.max_user_instances", "user.max_inotify_instances")


@dataclass(frozen=True, slots=True)
class WatchMethod:
    """The choice, and why; ``limit`` is how many ``directories`` the kernel lets a user watch.

    ``next_step`` is what to do about polling, where something can be done.
    """

    kind: Literal["inotify", "polling"]
    why: str
    directories: int = 0
    limit: int | None = None
    next_step: str | None = None


def choose_method(root: Path) -> WatchMethod:
    """Choose how to watch a registry, by where it lies and what the kernel grants."""
    kind = network_file_system(root) or _network_inside(root)
    if kind is not None:
        return WatchMethod("polling", f"{kind} does not tell what other machines write")
    refused = inotify_refusal()
    if refused is not None:
        return refused
    directories, limit = count_directories(root), watch_limit()
    if limit is not None and directories > limit:
        return exhausted(directories, limit)
    return WatchMethod("inotify", "local file system", directories, limit)


def inotify_refusal() -> WatchMethod | None:
    """Ask the kernel for an instance of inotify; return polling if it grants none."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_CLOEXEC) if hasattr(libc, "inotify_init1") else -1
    if descriptor >= 0:
        os.close(descriptor)
        return None
    return refused(ctypes.get_errno() or errno.ENOSYS)


def refused(number: int) -> WatchMethod:
    """Return polling for the error with which inotify was refused."""
    if number == errno.ENOSPC:
        return exhausted(0, watch_limit())
    if number == errno.EMFILE:
        name, limit = _tightest(_INSTANCES)
        return WatchMethod(
            "polling",
            f"no inotify instance is left to this user ({name} = {limit}), or no file descriptor",
            next_step=f"raise it: sysctl {name}=1024",
        )
    return WatchMethod("polling", f"inotify is refused here ({os.strerror(number)})")


def exhausted(directories: int, limit: int | None) -> WatchMethod:
    """Return polling for watches that do not suffice."""
    need = f"{directories:,} directories need one each" if directories else "none is left"
    return WatchMethod(
        "polling",
        f"the kernel's watches do not suffice ({watch_limit_name()} = {limit}; {need})",
        directories,
        limit,
        next_step=f"raise it: sysctl {watch_limit_name()}={enough(directories, limit)}",
    )


def watch_limit() -> int | None:
    """Return how many directories this user's programs may watch, None where nothing says so."""
    return _tightest(_WATCHES)[1]


def watch_limit_name() -> str:
    """Return the name under which that limit is set."""
    return _tightest(_WATCHES)[0]


def enough(directories: int, limit: int | None) -> int:
    """Return a limit, a power of two, with room for other programs of the user."""
    return 1 << max(2 * directories, 2 * (limit or 0), 65_536 - 1).bit_length()


def count_directories(root: Path) -> int:
    """Count the directories below a root, with itself; what cannot be read counts as one."""
    count, waiting = 0, [str(root)]
    while waiting:
        count += 1
        try:
            with os.scandir(waiting.pop()) as entries:
                waiting += [e.path for e in entries if e.is_dir(follow_symlinks=False)]
        except OSError:
            continue
    return count


def _network_inside(root: Path) -> str | None:
    """Return the kind of the first network file system that is mounted inside a registry."""
    inside = sorted(mount_points_below(Path(os.path.realpath(root)), read_mount_table()))
    return next(filter(None, (network_file_system(Path(point)) for point in inside)), None)


def _tightest(names: tuple[str, ...]) -> tuple[str, int | None]:
    """Return the lowest of some limits with its name."""
    found = [(value, name) for name in names if (value := _limit(name)) is not None]
    value, name = min(found, default=(None, names[0]))
    return name, value


def _limit(name: str) -> int | None:
    try:
        return int((_SYSCTL / name.replace(".", "/")).read_text())
    except (OSError, ValueError):
        return None
