"""A service's doorbell: files in ``state_dir`` by which commands ask it to do something at once.

Owns their names. A ring outlives both sides: one from before the service's start is answered by it.
Who may write the state may ring; nothing is said beside what is asked for.
"""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from prewarm.store.whole_file import write_errors


class Bell(StrEnum):
    """What is asked for."""

    LOOK = "look"
    """Look at the registry and the queue."""
    HOUSE = "house"
    """Keep house."""


class Doorbell:
    """Rings and answers the bells of one state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir

    def ring(self, bell: Bell) -> None:
        """Ask for it.

        Raises:
            NoSpace: no space left.
            NotWritable: the state directory cannot be written.
        """
        path = self._path(bell)
        with write_errors(path):
            path.touch()

    def answer(self, bell: Bell) -> bool:
        """Tell whether it was asked for since the last time."""
        with suppress(OSError):
            self._path(bell).unlink()
            return True
        return False

    def _path(self, bell: Bell) -> Path:
        return self._state_dir / f"ring-{bell}"
