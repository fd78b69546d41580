"""Sending a start report to a builder: ``POST /v1/reports`` over a Unix socket or HTTP.

Owns the body and one connection with a limit on all of it. Standard library only; imported when a
report is sent.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from .deployment import Deployment
from .events import read_events
from .report import fold

PATH = "/v1/reports"

#: What a builder takes, less some room for the rest of the body.
_REPORT_BYTES = 240 << 10

#: Of an answer that is no success, for the one line that tells it.
_ANSWER_BYTES = 2_000

_TOKEN_BYTES = 4_096


class NotTaken(Exception):
    """The builder did not take a report."""


def send_reports(
    deployment: Deployment,
    directory: str,
    to: str,
    *,
    limit_s: float,
    instead_of: Sequence[int | None] = (),
) -> list[int | None]:
    """Send one report for each entry of the deployment; return the builder's numbers of them.

    ``instead_of`` are the numbers of earlier ones of the same start, whose place they take.

    Raises:
        NotTaken: the builder refuses one.
        OSError, ValueError, http.client.HTTPException: it cannot be reached or understood.
    """
    ends_s = time.monotonic() + limit_s
    report = _small(fold(read_events(directory), has_triton=deployment.has_device))
    token = _token(deployment.reports.get("token_file"))
    ids: list[int | None] = []
    for number, entry in enumerate(deployment.entries):
        former = instead_of[number] if number < len(instead_of) else None
        body = {**entry, "report": report, **({"instead_of": former} if former else {})}
        data = json.dumps(body, default=str).encode("utf-8", "replace")
        ids.append(_number(_post(to, data, token, ends_s)))
    return ids


def _small(report: dict[str, Any]) -> dict[str, Any]:
    """Leave out graphs, those that were hits first, until a builder takes it."""
    graphs = report.get("graphs")
    while graphs and len(json.dumps(report, default=str)) > _REPORT_BYTES:
        graphs = graphs[: len(graphs) // 2]
        report = {**report, "graphs": graphs}
    return report


def _token(path: Any) -> str | None:
    if not isinstance(path, str):
        return None
    try:
        with open(path, encoding="ascii") as file:
            return file.read(_TOKEN_BYTES).strip() or None
    except (OSError, ValueError):
        return None  # the builder says what it needs


def _number(answer: bytes) -> int | None:
    try:
        return int(json.loads(answer)["id"])
    except (ValueError, KeyError, TypeError):
        return None


def _post(to: str, data: bytes, token: str | None, ends_s: float) -> bytes:
    connection, prefix = _connection(to, max(0.05, ends_s - time.monotonic()))
    headers = {"content-type": "application/json"}
    if token is not None:
        headers["authorization"] = "Bearer " + token
    try:
        connection.request("POST", prefix + PATH, data, headers)
        answer = connection.getresponse()
        told = answer.read(_ANSWER_BYTES)
        if answer.status != 201:
            words = " ".join(told.decode("utf-8", "replace").split())
            raise NotTaken("it answers %d: %s" % (answer.status, words[:300]))
        return told
    finally:
        connection.close()


def _connection(to: str, timeout_s: float) -> tuple[http.client.HTTPConnection, str]:
    if to.startswith("unix:"):
        return _UnixConnection(to[len("unix:") :], timeout_s), ""
    parts = urlsplit(to)
    kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    if parts.scheme not in kinds or not parts.hostname:
        raise ValueError("it is no address of a builder")
    made = kinds[parts.scheme](parts.hostname, parts.port, timeout=timeout_s)
    return made, parts.path.rstrip("/")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = os.fsencode(path)

    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(self.timeout)
        try:
            sock.connect(self._path)
        except BaseException:
            sock.close()
            raise
        self.sock = sock
