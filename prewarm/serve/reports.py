"""``POST /v1/reports``: what a deployment's start really did, kept beside what was proven."""

from __future__ import annotations

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from prewarm.serve.body import read_body
from prewarm.serve.house import House
from prewarm.serve.naming import model_named
from prewarm.serve.peer import Peer
from prewarm.serve.shelf import Shelf, Shelves
from prewarm.serve.start_report import Sent
from prewarm.store.database import Database
from prewarm.store.reports import ReportRow
from prewarm.store.timestamp import timestamp


async def answer_report(house: House, shelves: Shelves, request: Request) -> Response:
    """Keep a start report, and answer with its number.

    Raises:
        Refused: the body is wrong, or the model unknown.
    """
    limits = house.limits
    sent = await read_body(request, Sent, limit_bytes=limits.report_bytes, limit_s=limits.body_s)
    shelf = await shelves.present()
    row = await to_thread.run_sync(_keep, house, shelf, sent, request.state.peer)
    house.metrics.report_kept(compiled=row.compiled)
    return JSONResponse({"id": row.id, "model": row.model}, status_code=201)


def _keep(house: House, shelf: Shelf, sent: Sent, peer: Peer) -> ReportRow:
    report = sent.report
    seconds = report.first_answer_s if sent.first_answer_s is None else sent.first_answer_s
    with Database(house.database) as database:
        return database.add_report(
            model_named(sent.model, shelf, database),
            sent.environment,
            bundle_sha256=sent.bundle,
            # By what is published, not by what the deployment says.
            builder=None if sent.bundle is None else shelf.builders.get(sent.bundle),
            at=timestamp(house.now_s()),
            uid=peer.uid,
            first_answer_s=seconds,
            compiled=report.compiled,
            summary=report.summary(),
            report=report.model_dump(),
            instead_of=sent.instead_of,
        )
