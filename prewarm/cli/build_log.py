"""The log of an entry's last build: its end, and what is written to it from then on.

Owns how it is read and shown. The file may grow, lose its middle or be followed by another one
while it is read (``build/child_log.py``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prewarm.store.status import WORKING

#: How much of a build's log is shown at once.
LOG_LINES = 40

#: As much is read at a time of what was written since.
_READ_BYTES = 1 << 20


def log_end(entry: Mapping[str, Any]) -> str:
    """Return the last lines of an entry's log under a title, or why there are none."""
    title = _title(entry)
    if entry["log"] is None:
        return f"{title}: no build has run"
    try:
        lines = _last_lines(Path(entry["log"]))
    except FileNotFoundError as error:
        if entry["status"] in WORKING:
            return f"{title}: {entry['log']} has nothing yet"
        return f"{title}: {entry['log']} cannot be read ({error.strerror})"
    except OSError as error:
        return f"{title}: {entry['log']} cannot be read ({error.strerror})"
    return f"{title}: {entry['log']}\n{''.join(lines).rstrip()}"


class FollowedLogs:
    """The logs of some entries from now on: what is new in them, and where each entry stands."""

    def __init__(self, entries: Sequence[Mapping[str, Any]]) -> None:
        self._logs = {_key(entry): _Followed(entry["log"]) for entry in entries}
        self._standing = {_key(entry): _title(entry) for entry in entries}
        self._last: tuple[str, str] | None = None

    def news(self, entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """Yield what was written since, whose it is where that changes, and each move."""
        for entry in entries:
            key, title = _key(entry), _title(entry)
            followed = self._logs.setdefault(key, _Followed(None))
            text = followed.news(entry["log"])
            if text:
                if self._last != key:
                    yield f"{title}: {entry['log']}\n"
                    self._last = key
                yield text if text.endswith("\n") else text + "\n"
            if self._standing.get(key) != title:
                self._standing[key] = title
                yield f"{title}{': ' + entry['reason'] if entry['reason'] else ''}\n"


class _Followed:
    """One log, as far as it was read; what there is of the first one is known already."""

    def __init__(self, log: str | None) -> None:
        self._log = log
        self._place = 0
        if log is not None:
            try:
                self._place = Path(log).stat().st_size
            except OSError:
                self._place = 0

    def news(self, log: str | None) -> str:
        """Return the whole lines that came since; nothing while there is no file."""
        if log != self._log:
            self._log, self._place = log, 0
        if log is None:
            return ""
        try:
            with Path(log).open("rb") as file:
                if file.seek(0, 2) < self._place:
                    # Its middle went; the end is what is new.
                    self._place = file.tell()
                    return "".join(_last_lines(Path(log)))
                file.seek(self._place)
                data = file.read(_READ_BYTES)
        except OSError:
            return ""
        whole = data[: data.rfind(b"\n") + 1] or (data if len(data) == _READ_BYTES else b"")
        self._place += len(whole)
        return whole.decode("utf-8", "replace")


def _last_lines(log: Path) -> list[str]:
    with log.open(encoding="utf-8", errors="replace") as file:
        return list(deque(file, maxlen=LOG_LINES))


def _title(entry: Mapping[str, Any]) -> str:
    return f"== {entry['model']} ({entry['status']})"


def _key(entry: Mapping[str, Any]) -> tuple[str, str]:
    return entry["model"], entry["environment"]
