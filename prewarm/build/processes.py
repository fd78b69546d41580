"""The processes of one child: holding still, going on, their memory, and the end of all of them.

By the child's cgroup where it has one, else by its process group and by looking at what runs.
"""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import dataclass

import psutil

from prewarm.build import process_group
from prewarm.build.cgroup import Cgroup


@dataclass(frozen=True, slots=True)
class Processes:
    """A child that was started, with whatever it starts."""

    process: subprocess.Popen[bytes]
    #: The directory that a variable of all of them names.
    directory: str
    limit_bytes: int
    cgroup: Cgroup | None = None

    def hold_still(self) -> None:
        """Let nobody of them run; return once none does."""
        if self.cgroup is not None:
            with contextlib.suppress(OSError):  # its end removed it
                self.cgroup.hold_still()
        else:
            process_group.hold_still(self.process.pid, self.directory)

    def go_on(self) -> None:
        """Let all of them run again."""
        if self.cgroup is not None:
            with contextlib.suppress(OSError):
                self.cgroup.go_on()
        else:
            process_group.go_on(self.process.pid, self.directory)

    def over_limit(self) -> str | None:
        """Say how they took more memory than they may; None if they did not.

        A cgroup's limit is the kernel's to keep, which ends them; this tells it afterwards.
        """
        limit = f"{self.limit_bytes / 2**30:.1f} GiB that a build may take here"
        if self.cgroup is not None and self.cgroup.limits_memory:
            if self.cgroup.ran_out_of_memory():
                return f"it took more memory than the {limit}; the kernel ended it"
            return None
        used_bytes = _memory_of(self.process.pid)
        if used_bytes <= self.limit_bytes:
            return None
        return (
            f"it took {used_bytes / 2**30:.1f} GiB of memory, more than the {limit}; it was ended"
        )

    def end(self) -> int:
        """End all of them, wherever they went; return the child's own exit status."""
        process_group.end_group(self.process.pid)
        returncode = self.process.wait()
        if self.cgroup is not None:
            self.cgroup.end()
        process_group.end_strays(self.directory)
        return returncode


def _memory_of(pid: int) -> int:
    """Return the resident bytes of a process and its children."""
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for member in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += member.memory_info().rss
    return total
