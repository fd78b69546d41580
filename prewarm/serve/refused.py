"""The one place where an error becomes an HTTP answer: ``{"error": {"code", "message"}}``.

Owns which status each code has. An error of prewarm's own making tells its one line; anything else
is a fault, which tells the reader nothing and the builder all.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from starlette.responses import JSONResponse, Response

from prewarm.errors import PrewarmError

#: What is not here is 500: the builder must be looked at.
STATUSES: Mapping[str, int] = MappingProxyType(
    {
        "bad_request": 400,
        "token_needed": 401,
        "forbidden": 403,
        "not_found": 404,
        "no_bundle": 404,
        "unknown_model": 404,
        "bad_method": 405,
        "too_slow": 408,
        "environment_differs": 409,
        "too_large": 413,
        "bad_range": 416,
        "too_many": 429,
        "busy": 503,
        "lock_held": 503,
        "no_manifest": 503,
        "not_trusted": 503,
        "no_space": 507,
    }
)

_FAULT = 500


class Refused(PrewarmError):
    """A request that is not answered as asked; ``headers`` go with the answer."""

    code = "bad_request"

    def __init__(
        self, message: str, *, code: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.headers = dict(headers or {})


def busy(message: str, *, retry_after_s: int) -> Refused:
    """Return the refusal of what would be taken at another time."""
    return Refused(message, code="busy", headers={"retry-after": str(retry_after_s)})


def answer_of(error: PrewarmError) -> Response:
    """Return the answer that tells an error."""
    headers = error.headers if isinstance(error, Refused) else {}
    return _answer(STATUSES.get(error.code, _FAULT), error.code, str(error), headers)


def fault_answer() -> Response:
    """Return the answer for a fault of ours."""
    return _answer(_FAULT, "internal", "a fault of prewarm's own; the builder's log names it", {})


def _answer(status: int, code: str, message: str, headers: Mapping[str, str]) -> Response:
    body = {"error": {"code": code, "message": message}}
    # A body that was not read, or not to its end, must not be taken for the next request.
    return JSONResponse(body, status, headers={"connection": "close", **headers})
