"""The table ``reports``: what deployments said that their starts really did.

Owns the table's SQL and its bounds, since deployments decide how many there are. Whether a report
is well-formed, and who may send one, is ``serve``'s to say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prewarm.store.connection import Connection, Row, to_json
from prewarm.store.start_summary import NOTHING_KNOWN, StartSummary

#: The last starts of a model: enough to see one that was as always beside one that was not.
MOST_OF_A_MODEL = 50

#: Of all models together; at the largest size that is taken, half a gigabyte.
MOST_REPORTS = 2_000


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One start of a deployment.

    ``uid`` is who sent it, None if it came with the token; ``builder`` who published the bundle;
    ``compiled`` whether anything was; None where that cannot be told. ``summary`` is what is looked
    at often (``start_summary.py``).
    """

    id: int
    model: str
    environment_id: str
    bundle_sha256: str | None
    builder: str | None
    at: str
    uid: int | None
    first_answer_s: float | None
    compiled: bool | None
    summary: StartSummary
    report: dict[str, Any]


class Reports(Connection):
    """Reads and writes the table ``reports``."""

    def add_report(
        self,
        model: str,
        environment_id: str,
        *,
        bundle_sha256: str | None,
        at: str,
        uid: int | None,
        first_answer_s: float | None,
        compiled: bool | None,
        report: Mapping[str, object],
        builder: str | None = None,
        summary: StartSummary = NOTHING_KNOWN,
        instead_of: int | None = None,
    ) -> ReportRow:
        """Record a start report; the oldest over the bounds are gone afterwards.

        ``instead_of`` is an earlier report of the same start; another's is not taken away.
        """
        with self.transaction():
            self.execute(
                """
                DELETE FROM reports
                WHERE id = :id AND model = :model AND environment_id = :environment_id
                  AND uid IS :uid
                """,
                {
                    "id": instead_of,
                    "model": model,
                    "environment_id": environment_id,
                    "uid": uid,
                },
            )
            [row] = self.query(
                """
                INSERT INTO reports (model, environment_id, bundle_sha256, builder, at, uid,
                  first_answer_s, compiled, summary, report)
                VALUES (:model, :environment_id, :bundle_sha256, :builder, :at, :uid,
                  :first_answer_s, :compiled, :summary, :report)
                RETURNING *
                """,
                {
                    "model": model,
                    "environment_id": environment_id,
                    "bundle_sha256": bundle_sha256,
                    "builder": builder,
                    "at": at,
                    "uid": uid,
                    "first_answer_s": first_answer_s,
                    "compiled": compiled,
                    "summary": summary.to_json(),
                    "report": to_json(dict(report)),
                },
            )
            self.execute(
                """
                DELETE FROM reports
                WHERE id IN (SELECT id FROM reports ORDER BY id DESC LIMIT -1 OFFSET :all)
                  OR id IN (SELECT id FROM reports WHERE model = :model
                            ORDER BY id DESC LIMIT -1 OFFSET :one)
                """,
                {"model": model, "one": MOST_OF_A_MODEL, "all": MOST_REPORTS},
            )
        return _report(row)

    def reports(self, model: str, limit: int = MOST_OF_A_MODEL) -> tuple[ReportRow, ...]:
        """Return the last start reports of a model, newest first."""
        rows = self.query(
            "SELECT * FROM reports WHERE model = :model ORDER BY id DESC LIMIT :limit",
            {"model": model, "limit": limit},
        )
        return tuple(_report(row) for row in rows)

    def forget_reports(self, *, before: str) -> int:
        """Forget what is older than ``before``; return how many."""
        return len(
            self.query("DELETE FROM reports WHERE at < :before RETURNING id", {"before": before})
        )


def _report(row: Row) -> ReportRow:
    compiled = row["compiled"]
    return ReportRow(
        **{
            **row,
            "compiled": None if compiled is None else bool(compiled),
            "summary": StartSummary.from_json(row["summary"]),
            "report": json.loads(row["report"]),
        }
    )
