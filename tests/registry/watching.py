"""A watcher in a thread of its own, and what it yielded, for tests of the watching."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prewarm.registry.watcher import Changes, Watcher

#: Long enough that no test can pass by the timer.
NEVER_S = 3600.0


class Watching:
    """What a watcher yielded so far; ``look`` is called with each set, in the watcher's loop."""

    def __init__(
        self, root: Path, look: Callable[[Changes], None] = lambda found: None, **options: Any
    ) -> None:
        self.root = root
        self.stop = threading.Event()
        options = {"rescan_s": NEVER_S, "settle_s": 0.05, **options}
        self.watcher = Watcher(root, stop=self.stop, **options)
        self.sets: list[Changes] = []
        self._look = look
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watching:
        self._thread.start()
        assert self._begun.wait(30), "nothing was yielded"
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), "it did not end"

    def _run(self) -> None:
        for found in self.watcher.changes():
            self.sets.append(found)
            self._look(found)
            self._begun.set()

    @property
    def observer(self) -> Any:
        return self.watcher._observing._observer

    @property
    def whys(self) -> list[str]:
        return [found.why for found in self.sets]

    @property
    def notes(self) -> list[str]:
        return [note for found in self.sets for note in found.notes]

    def told(self) -> set[str]:
        """Return every path that was told, relative to the root."""
        paths = (path for found in self.sets for path in found.paths or ())
        return {path.relative_to(self.root).as_posix() for path in paths}

    def settled(self) -> set[str]:
        """Return the paths that were told as quiet for the settle time."""
        paths = (path for one in self.sets if one.why == "settled" for path in one.paths or ())
        return {path.relative_to(self.root).as_posix() for path in paths}
