"""The body of a request: read with a limit on its size and time, then checked strictly.

Every issue is told at once. JSON is taken as the standard has it: no NaN, no lone surrogates.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from prewarm.serve.refused import Refused

#: More issues than these are counted instead of told.
_TOLD_ISSUES = 6


class Body(BaseModel):
    """What a request may say: these fields and no others, of just these types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


_B = TypeVar("_B", bound=Body)


async def read_body(request: Request, kind: type[_B], *, limit_bytes: int, limit_s: float) -> _B:
    """Read and check the body of a request.

    Raises:
        Refused: it is too large, too slow, no JSON, or says something else.
    """
    try:
        async with asyncio.timeout(limit_s):
            data = await _read(request, limit_bytes)
    except TimeoutError:
        raise Refused(f"the body did not come within {limit_s:g} s", code="too_slow") from None
    except ClientDisconnect:
        raise Refused("the body did not come to its end") from None
    try:
        found: Any = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise Refused(f"the body is no JSON: {error}") from None
    try:
        return kind.model_validate(found)
    except ValidationError as error:
        raise Refused(_told(error)) from None


async def _read(request: Request, limit_bytes: int) -> bytes:
    too_large = Refused(f"the body is over the limit of {limit_bytes:,} bytes", code="too_large")
    if int(request.headers.get("content-length", 0)) > limit_bytes:
        raise too_large
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > limit_bytes:
            raise too_large
    return bytes(data)


def _told(error: ValidationError) -> str:
    issues = [
        f"{'.'.join(str(part) for part in issue['loc']) or 'the body'}: {issue['msg']}"
        for issue in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    told = issues[:_TOLD_ISSUES]
    if len(issues) > _TOLD_ISSUES:
        told.append(f"and {len(issues) - _TOLD_ISSUES} more")
    return "; ".join(told)
