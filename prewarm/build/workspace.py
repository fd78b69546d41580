"""The builder's own scratch.

``state_dir/work``, the copy of torchside, and the directories of one run.

Nothing here must last. What a dead builder left behind is removed at the next start.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from prewarm.build.process_group import end_strays
from prewarm.store.logs import KEPT, earlier_logs, log_of
from prewarm.store.torchside_copy import copy_torchside, torchside_digest
from prewarm.store.whole_file import write_errors

#: Scratch on its way out, followed by the process that removes it.
_DEAD = "work-dead-"


class Workspace:
    """Scratch directories below ``state_dir/work``."""

    def __init__(self, state_dir: Path) -> None:
        self.root = state_dir / "work"
        self.logs = state_dir / "logs"

    def open(self) -> Path:
        """Empty the scratch of dead runs, end their children, and return a fresh copy of torchside.

        Raises:
            NotWritable: the state directory cannot be written.
            NoSpace: no space left in it.

        """
        with write_errors(self.root):
            self._clear()
            self.logs.mkdir(parents=True, exist_ok=True)
            self.root.mkdir(parents=True, mode=0o755)
            copy = self.root / f"torchside-{torchside_digest()}"
            copy_torchside(copy)
        return copy

    @contextlib.contextmanager
    def directory(self, purpose: str) -> Iterator[Path]:
        """Yield a new directory of an unforeseeable name, readable by others.

        Removed afterwards.

        Raises:
            NoSpace: no space left in the state directory.

        """
        with write_errors(self.root):
            path = Path(tempfile.mkdtemp(prefix=purpose + "-", dir=self.root))
        try:
            with write_errors(path):
                path.chmod(0o755)
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def new_log(self, model: str, environment_id: str, at: str) -> Path:
        """Return the file for the log of a build of an entry that begins now.

        Its oldest ones go, so that with this one ``KEPT`` are left.
        """
        log = log_of(self.logs, model, environment_id, at)
        for old in earlier_logs(log)[: -(KEPT - 1)]:
            with contextlib.suppress(OSError):
                old.unlink()
        return log

    def _clear(self) -> None:
        # One that was killed while it cleared, too: its number is nobody else's to remove.
        for dead in self.root.parent.glob(_DEAD + "*"):
            shutil.rmtree(dead, ignore_errors=True)
        if not self.root.exists():
            return
        end_strays(str(self.root))
        doomed = self.root.with_name(f"{_DEAD}{os.getpid()}")
        shutil.rmtree(doomed, ignore_errors=True)
        self.root.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
