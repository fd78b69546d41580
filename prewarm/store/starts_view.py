"""The last starts of each entry, as ``status`` reads them: summaries, never a report itself.

Owns that statement. Read-only, by ``view.py``'s way into the database.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prewarm.store.start_summary import StartSummary
from prewarm.store.view import read_rows

# A window, not a query for each entry: all reports there may be are few, and entries are not.
_SQL = """
SELECT model, environment_id, kept, at, uid, builder, bundle_sha256, first_answer_s, compiled,
  summary
FROM (
  SELECT *,
    row_number() OVER newest AS place,
    count(*) OVER (PARTITION BY model, environment_id) AS kept
  FROM (
    SELECT id, model, environment_id, at, uid, builder, bundle_sha256, first_answer_s, compiled,
      summary
    FROM reports
  )
  WINDOW newest AS (PARTITION BY model, environment_id ORDER BY id DESC)
)
WHERE place <= ?
ORDER BY model, environment_id, place
"""


@dataclass(frozen=True, slots=True)
class StartRow:
    """One start of a deployment: when, who sent it, from which bundle of which builder.

    ``compiled`` is whether anything was, None where that cannot be told.
    """

    at: str
    uid: int | None
    builder: str | None
    bundle_sha256: str | None
    first_answer_s: float | None
    compiled: bool | None
    summary_json: str

    @property
    def summary(self) -> StartSummary:
        """What is counted and what was compiled; parsed at each use."""
        return StartSummary.from_json(self.summary_json)


@dataclass(frozen=True, slots=True)
class Starts:
    """The newest starts of one entry, newest first, and of how many there are reports."""

    kept: int
    newest: tuple[StartRow, ...]


def read_starts(state_dir: Path, *, each: int) -> dict[tuple[str, str], Starts]:
    """Return at most ``each`` starts of each entry, by model and environment.

    Raises:
        PrewarmError: as ``read_status``.
    """
    found: dict[tuple[str, str], Starts] = {}
    for row in read_rows(state_dir, _SQL, each):
        model, environment_id, kept, at, uid, builder, sha256, seconds, compiled, summary = row
        known = found.get((model, environment_id), Starts(kept, ()))
        start = StartRow(
            at=at,
            uid=uid,
            builder=builder,
            bundle_sha256=sha256,
            first_answer_s=seconds,
            compiled=None if compiled is None else bool(compiled),
            summary_json=summary,
        )
        found[model, environment_id] = Starts(kept, (*known.newest, start))
    return found
