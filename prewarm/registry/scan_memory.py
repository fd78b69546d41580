"""What a scan remembers of the one before: which checkpoints were whole, by their files' stamps.

Owns when a remembered judgement holds: while names, sizes, times and inodes of all files are the
same. Only "whole" is remembered: what is faulty is few, and may be mended without a new stamp.
"""

from __future__ import annotations

from collections.abc import Iterable

from prewarm.registry.checkpoint import Checkpoint

#: Seconds that the newest change must be old: within its clock's tick a file can change unseen.
OLD_ENOUGH_S = 2.5


class ScanMemory:
    """The checkpoints that were found whole; lives as long as who scans again and again."""

    def __init__(self) -> None:
        self._whole: dict[str, int] = {}

    def knows_whole(self, checkpoint: Checkpoint) -> bool:
        """Say whether a checkpoint was found whole with these very files."""
        return self._whole.get(checkpoint.name) == _stamp(checkpoint)

    def keep_whole(self, checkpoint: Checkpoint, *, now_s: float) -> None:
        """Remember a checkpoint that was found whole just now."""
        if now_s - checkpoint.newest_mtime_s >= OLD_ENOUGH_S:
            self._whole[checkpoint.name] = _stamp(checkpoint)

    def forget_all_but(self, names: Iterable[str]) -> None:
        """Forget the checkpoints that are gone."""
        for name in self._whole.keys() - set(names):
            del self._whole[name]


def _stamp(checkpoint: Checkpoint) -> int:
    """Return one number for all files: it is compared within this process only."""
    return hash(
        tuple(
            (file.name, file.place, file.size_bytes, file.mtime_ns, file.ctime_ns, file.inode)
            for file in checkpoint.files
        )
    )
