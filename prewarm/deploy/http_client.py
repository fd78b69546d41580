"""Questions to a builder over HTTP, and its answers, nothing of which is believed.

Owns redirects (followed on the same host only, and never from https to http), the limit on what is
read, and how an error of the builder's is told. Content encodings are neither asked for nor taken.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urljoin, urlsplit

from prewarm import __version__
from prewarm.deploy.address import Endpoint
from prewarm.deploy.deadline import Deadline
from prewarm.deploy.http_connection import connected, peer_uid, wire_errors
from prewarm.errors import ManifestUnavailable

#: A silence that is longer is a connection that is broken.
IDLE_S = 10.0

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 4

_PIECE_BYTES = 256 << 10
_ERROR_BYTES = 16 << 10
_TOLD_CHARACTERS = 300

#: Codes that a builder's error may have; what else stands there is a stranger's text.
_CODES = frozenset({
    "bad_request", "token_needed", "forbidden", "not_found", "no_bundle", "unknown_model",
    "too_slow", "environment_differs", "too_large", "bad_range", "too_many", "busy", "no_manifest",
    "not_trusted", "lock_held", "no_space",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Question:
    """A request: a path of the builder's, with the token that opens it where it needs one."""

    path: str
    method: str = "GET"
    headers: Mapping[str, str] | None = None
    body: bytes | None = None
    token: str | None = None
    idle_s: float = IDLE_S


class Answer:
    """An answer whose body is still to be read; ``peer_uid`` is who listens on a Unix socket."""

    def __init__(
        self,
        endpoint: Endpoint,
        deadline: Deadline,
        response: http.client.HTTPResponse,
        peer_uid: int | None,
    ) -> None:
        self.endpoint = endpoint
        self.status = response.status
        self.length = response.length
        self.peer_uid = peer_uid
        self._deadline = deadline
        self._response = response

    def header(self, name: str) -> str:
        """Return a header, empty where there is none."""
        return str(self._response.getheader(name, ""))

    def pieces(self) -> Iterator[bytes]:
        """Yield the body until its end, which may come early.

        Raises:
            Broken: the connection broke off.
            ManifestUnavailable: the time is over.
        """
        while True:
            with wire_errors(self.endpoint, self._deadline):
                piece = self._response.read(_PIECE_BYTES)
            if not piece:
                return
            yield piece

    def read_all(self, limit_bytes: int) -> bytearray:
        """Return the whole body.

        Raises:
            Broken: the connection broke off.
            ManifestUnavailable: it is longer than the limit or cut off, or the time is over.
        """
        if (self.length or 0) > limit_bytes:
            raise self.wrong(f"would send {self.length:,} bytes, over the limit of {limit_bytes:,}")
        body = bytearray()
        for piece in self.pieces():
            body += piece
            if len(body) > limit_bytes:
                raise self.wrong(f"sends more than the limit of {limit_bytes:,} bytes")
        if self.length is not None and len(body) != self.length:
            raise self.wrong(f"sent {len(body):,} of {self.length:,} bytes")
        return body

    def wrong(self, what: str) -> ManifestUnavailable:
        """Return the error for an answer that no builder gives."""
        return ManifestUnavailable(
            f"{self.endpoint}: {what}; look what answers there", code="bad_answer"
        )

    def refusal(self) -> ManifestUnavailable:
        """Return what the builder says why it does not answer as asked."""
        code, message = "", ""
        try:
            error = json.loads(self.read_all(_ERROR_BYTES))["error"]
            code, message = str(error["code"]), printable(str(error["message"]))
        except (ManifestUnavailable, ValueError, LookupError, TypeError, RecursionError):
            code = ""
        if code not in _CODES:
            return self.wrong(f"answers with status {self.status}")
        return ManifestUnavailable(f"{self.endpoint}: {message}", code=code)


@contextmanager
def asked(endpoint: Endpoint, question: Question, deadline: Deadline) -> Iterator[Answer]:
    """Ask, and give the answer for as long as the block lasts.

    Raises:
        Broken: nobody answers, or no proper HTTP.
        ManifestUnavailable: it redirects to elsewhere or in circles, or the time is over.
    """
    target = endpoint.target(question.path)
    for _ in range(_MOST_REDIRECTS + 1):
        with connected(endpoint, deadline, idle_s=question.idle_s) as connection:
            # Its socket is let go of with the answer.
            uid = peer_uid(connection)
            with wire_errors(endpoint, deadline):
                headers = {"user-agent": f"prewarm/{__version__}", "connection": "close"}
                headers |= question.headers or {}
                if question.token is not None:
                    headers["authorization"] = f"Bearer {question.token}"
                connection.request(question.method, target, body=question.body, headers=headers)
                response = connection.getresponse()
            answer = Answer(endpoint, deadline, response, uid)
            if answer.status not in _REDIRECTS:
                _refuse_encoded(answer)
                yield answer
                return
            if question.method != "GET":
                raise answer.wrong("redirects what was sent to it")
            endpoint, target = _redirected(answer, target)
    raise ManifestUnavailable(
        f"{endpoint}: redirects more than {_MOST_REDIRECTS} times; look what answers there",
        code="bad_answer",
    )


def printable(text: str) -> str:
    """Return a stranger's text as one line that does nothing to a terminal."""
    one_line = " ".join(text.split())
    shown = "".join(one if one.isprintable() else "?" for one in one_line[:_TOLD_CHARACTERS])
    return shown + ("…" if len(one_line) > _TOLD_CHARACTERS else "")


def _refuse_encoded(answer: Answer) -> None:
    encoding = answer.header("content-encoding").strip().lower()
    if encoding not in ("", "identity"):
        raise answer.wrong(f"answers in {printable(encoding)[:40]}, which was not asked for")


def _redirected(answer: Answer, target: str) -> tuple[Endpoint, str]:
    """Return where a redirect leads on the same host."""
    here, location = answer.endpoint, answer.header("location")
    host = f"[{here.host}]" if ":" in here.host else here.host
    scheme = "http" if here.scheme == "unix" else here.scheme
    port = here.port or 80
    try:
        parts = urlsplit(urljoin(f"{scheme}://{host}:{port}{target}", location))
        there = (parts.scheme, (parts.hostname or "").lower(), parts.port)
    except ValueError:
        raise answer.wrong("redirects to no address") from None
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    if there == (scheme, here.host.lower(), port):
        return here, path
    upgraded = there[0] == "https" and here.scheme == "http" and there[1] == here.host.lower()
    if not location or not upgraded:
        raise answer.wrong(f"redirects to {printable(location)[:100] or 'nowhere'}, not followed")
    return replace(here, scheme="https", port=there[2] or 443), path


def as_json(body: Mapping[str, Any]) -> bytes:
    """Return the body of a question."""
    return json.dumps(body).encode()
