"""The HTTP application: which path and method goes where.

Owns the routes and how an error on the way becomes an answer (``refused.py``). Each answer stands
in the file named for it.
"""

from __future__ import annotations

import traceback

from anyio import to_thread
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from prewarm.errors import PrewarmError
from prewarm.serve.bundle import answer_bundle
from prewarm.serve.gate import Gate
from prewarm.serve.house import House
from prewarm.serve.manifest import answer_manifest
from prewarm.serve.refused import Refused, answer_of, fault_answer
from prewarm.serve.reports import answer_report
from prewarm.serve.requests import Requests
from prewarm.serve.shelf import Shelves


def make_app(house: House) -> Starlette:
    """Return the application of a builder; ``app.state.waiting`` holds who waits."""
    shelves = Shelves(house.cache_dir, uid=house.uid, tell=house.tell)
    requests = Requests(house, shelves)

    async def manifest(request: Request) -> Response:
        return await answer_manifest(shelves, request)

    async def bundle(request: Request) -> Response:
        return await answer_bundle(house.cache_dir, request)

    async def report(request: Request) -> Response:
        return await answer_report(house, shelves, request)

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(_: Request) -> Response:
        is_ready = house.ready()
        told = {"status": "ready" if is_ready else "not ready"}
        return JSONResponse(told, status_code=200 if is_ready else 503)

    async def metrics(_: Request) -> Response:
        text = await to_thread.run_sync(house.metrics.text)
        return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})

    async def fault(_: Request, error: Exception) -> Response:
        house.tell("".join(traceback.format_exception(error)))
        return fault_answer()

    app = Starlette(
        routes=[
            Route("/v1/manifest", manifest),
            Route("/v1/bundles/{sha256}", bundle),
            Route("/v1/requests", requests.answer, methods=["POST"]),
            Route("/v1/reports", report, methods=["POST"]),
            Route("/healthz", health),
            Route("/readyz", ready),
            Route("/metrics", metrics),
        ],
        middleware=[Middleware(Gate, house=house)],
        exception_handlers={
            PrewarmError: _told,
            HTTPException: _refused,
            Exception: fault,
        },
    )
    # A path that is not known is not known with a slash behind it either.
    app.router.redirect_slashes = False
    app.state.waiting = requests.waiting
    return app


async def _told(_: Request, error: Exception) -> Response:
    assert isinstance(error, PrewarmError)
    return answer_of(error)


async def _refused(_: Request, error: Exception) -> Response:
    """Say in our words what the framework refused."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return answer_of(Refused("there is no such path", code="not_found"))
    if error.status_code == 405:
        there = Refused("there is no such method", code="bad_method", headers=error.headers)
        return answer_of(there)
    return answer_of(Refused(error.detail))
