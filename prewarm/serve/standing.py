"""Where a model stands that a deployment waits for. Pure.

- What is in a manifest counts, not what the database says alone: the database is first, and who is
  told "warm" reads the manifest next.
- It stands still (``rests``) when waiting longer brings nothing by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from prewarm.serve.shelf import Named
from prewarm.store.entries import Entry
from prewarm.store.status import PUBLISHED, Status

#: Statuses that end a wait, beside those that are published.
_ENDS = frozenset({Status.UNCACHEABLE, Status.FAILED, Status.RETIRED})

#: Of several environments, the one that is nearest to being warm is told.
_NEAREST = (
    Status.WARM,
    Status.PARTIAL,
    Status.PROVING,
    Status.BUILDING,
    Status.QUEUED,
    Status.STALE,
    Status.SETTLING,
    Status.UNCACHEABLE,
    Status.FAILED,
    Status.RETIRED,
)


@dataclass(frozen=True, slots=True)
class Wish:
    """A model by its own name, in one environment, or in whichever it is built for."""

    model: str
    environment_id: str | None


@dataclass(frozen=True, slots=True)
class Standing:
    """Where it stands; no status where no scan has made an entry of it yet."""

    model: str
    status: Status | None
    reason: str | None = None
    code: str | None = None
    entry_json: bytes | None = None
    rests: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it as it is answered."""
        return {
            "model": self.model,
            "status": self.status,
            "reason": self.reason,
            "code": self.code,
            "entry": None if self.entry_json is None else json.loads(self.entry_json),
        }


def standing_of(wish: Wish, named: Iterable[Named], entries: Sequence[Entry]) -> Standing:
    """Say where a wish stands by what the manifests and the database have of its model."""
    published = [one for one in named if wish.environment_id in (None, one.environment_id)]
    if published:
        best = min(published, key=lambda one: _NEAREST.index(one.status))
        return Standing(best.model, best.status, best.reason, best.code, best.json, rests=True)
    here = _here(wish, entries)
    if not here:
        return Standing(wish.model, None)
    nearest = min(here, key=lambda entry: _NEAREST.index(entry.status))
    if nearest.status in PUBLISHED:
        # Proven, and its manifest is being written.
        return Standing(wish.model, Status.PROVING)
    rests = nearest.status in _ENDS
    return Standing(wish.model, nearest.status, nearest.reason, nearest.code, rests=rests)


def is_built_elsewhere(wish: Wish, entries: Sequence[Entry]) -> bool:
    """Whether the model has entries, but none in the environment of the wish."""
    return bool(entries) and not _here(wish, entries)


def _here(wish: Wish, entries: Sequence[Entry]) -> list[Entry]:
    here = [entry for entry in entries if wish.environment_id in (None, entry.environment_id)]
    # Where the declaration cannot be read, no environment is known, and the reason is for all.
    return here or [entry for entry in entries if not entry.environment_id]
