"""Where the children of a worker run: on which device, in which turns and cgroups.

A foreground run has a place of its own, with nobody beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from prewarm.build.cgroup import Cgroups
from prewarm.build.device import Device
from prewarm.build.turns import Turn, Turns
from prewarm.errors import PrewarmError

CPU = Device("cpu")


class NeedsBuild(PrewarmError):
    """No bundle that is there is of use, and the worker that tried only makes proofs."""

    code = "needs_build"


@dataclass(frozen=True, slots=True)
class Place:
    """A worker's place; ``builds`` is how many workers of the device may compile at once."""

    device: Device = CPU
    turns: Turns = field(default_factory=Turns)
    cgroups: Cgroups | None = None
    builds: int = 1
    proofs_only: bool = False

    @contextmanager
    def turn(self, stop: threading.Event) -> Iterator[Turn]:
        """Have the device for oneself.

        Raises:
            Interrupted: ``stop`` was set while it waited.
        """
        with self.turns.held(stop) as turn:
            yield turn

    def variables(self) -> Mapping[str, str]:
        """Return the variables that every child has here."""
        return self.device.variables()
