"""The log of a service: one line per event on standard error.

Owns the two forms of a line, for people and as JSON, and what never stands in one.

- A field that is called like a secret is masked, and so is a secret's value wherever it stands.
- Control characters are escaped: a name from the registry cannot begin a line of its own, nor
  steer a terminal.
- Writing never raises into the caller: a log that is gone takes no service down.
- A line is one write, so threads do not mix theirs.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal, TextIO

Form = Literal["human", "json"]
Level = Literal["debug", "info", "warning", "error"]

#: No value is longer in a line; a reason is a sentence, and a log of a build is a file.
LONGEST_VALUE = 2000

MASK = "***"

_SECRET_NAME = re.compile(r"token|key|passw|secret|credential|authorization|cookie", re.IGNORECASE)
#: Digests and the like, which only sound like secrets.
_NO_SECRETS = frozenset({"build_key", "build_keys", "keyid"})

_SECRET_IN_TEXT = (
    # user:password@ in an address
    (re.compile(r"(://)[^/\s@]+@"), rf"\1{MASK}@"),
    (re.compile(r"(?i)\b(bearer\s+)[^\s,;\"']+"), rf"\1{MASK}"),
    (re.compile(r"(?i)\b((?:[a-z0-9]+[_-])*(?:token|password|secret)=)[^\s&,;]+"), rf"\1{MASK}"),
)


class Log:
    """Writes events to a stream; safe to use from several threads."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        form: Form = "human",
        secrets: Iterable[str] = (),
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._form = form
        # The longest first, so that one which begins another leaves no rest of it.
        self._secrets = sorted(filter(None, secrets), key=len, reverse=True)
        self._now_s = now_s
        self._lock = threading.Lock()

    def event(
        self, event: str, *, level: Level = "info", model: str | None = None, **fields: object
    ) -> None:
        """Write one line; fields that are None are left out."""
        with suppress(Exception):
            told = {"model": model, **fields}
            shown = {
                name: self._masked(name, value) for name, value in told.items() if value is not None
            }
            make = _as_json if self._form == "json" else _for_people
            line = make(self._now_s(), level, self._without_secrets(event), shown)
            encoding = getattr(self._stream, "encoding", None) or "utf-8"
            safe = line.encode(encoding, "backslashreplace").decode(encoding)
            with self._lock:
                self._stream.write(safe + "\n")
                self._stream.flush()

    def _masked(self, name: str, value: object) -> object:
        if name not in _NO_SECRETS and _SECRET_NAME.search(name):
            return MASK
        if isinstance(value, Mapping):
            return {str(key): self._masked(str(key), one) for key, one in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._masked("", one) for one in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        return _cut(self._without_secrets(str(value)))

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        for pattern, masked in _SECRET_IN_TEXT:
            text = pattern.sub(masked, text)
        return text


def choose_form(environ: Mapping[str, str], stream: TextIO, asked: Form | None = None) -> Form:
    """Return the form that was asked for, else JSON for systemd's journal and text for people.

    A terminal that was started by a service of systemd has the journal's variable too.
    """
    if asked is not None:
        return asked
    return "json" if environ.get("JOURNAL_STREAM") and not stream.isatty() else "human"


def _as_json(at_s: float, level: Level, event: str, fields: Mapping[str, object]) -> str:
    at = datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")
    told = {"at": at.replace("+00:00", "Z"), "level": level, "event": event}
    # A field cannot take the place of what every line has. All but ASCII is escaped.
    return json.dumps({**fields, **told} if fields.keys() & told.keys() else {**told, **fields})


def _for_people(at_s: float, level: Level, event: str, fields: Mapping[str, object]) -> str:
    rest = dict(fields)
    model, detail = rest.pop("model", None), rest.pop("detail", None)
    words = [time.strftime("%H:%M:%S", time.localtime(at_s))]
    words += [] if level == "info" else [f"{level}:"]
    words += [] if model is None else [str(model)]
    words.append(event if detail is None else f"{event}: {detail}")
    words += [f"{name}={_value(value)}" for name, value in rest.items()]
    return escaped(" ".join(words))


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, str):
        return value if value and not re.search(r"[\s=\"]", value) else json.dumps(value)
    return str(value) if isinstance(value, int) else json.dumps(value)


def escaped(text: str) -> str:
    """Return text in which nothing ends a line, moves a cursor or turns the direction round."""
    return "".join(_escape(one) if _steers(one) else one for one in text)


def _steers(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp", "Cs")


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
