"""What keeping house came to last: ``state_dir/house.json``, for ``prewarm status``.

Owns that file. It is news and no truth: a lost one is written again the next time.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from prewarm.store.whole_file import write_whole

NAME = "house.json"


@dataclass(frozen=True, slots=True)
class HouseNote:
    """The size of the bundles that stay, the limit (0: none), and why they are over it."""

    at: str
    bundle_bytes: int
    limit_bytes: int
    problem: str | None = None


def write_house_note(state_dir: Path, note: HouseNote) -> None:
    """Keep what came of it.

    Raises:
        NoSpace: no space left.
        NotWritable: the state directory cannot be written.
    """
    write_whole(state_dir / NAME, json.dumps(asdict(note)).encode() + b"\n")


def read_house_note(state_dir: Path) -> HouseNote | None:
    """Return what came of it, None where house was never kept or the note cannot be read."""
    try:
        told = json.loads((state_dir / NAME).read_bytes())
        problem = told["problem"]
        return HouseNote(
            str(told["at"]),
            int(told["bundle_bytes"]),
            int(told["limit_bytes"]),
            None if problem is None else str(problem),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
