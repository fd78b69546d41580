"""The line on which each key of a TOML text stands.

``tomllib`` reads values without places, and an error without a line is half an error. Owns a walk
over text that ``tomllib`` has already accepted, so it is lenient: what it does not understand only
costs a line number.
"""

from __future__ import annotations

import re

Place = tuple[str | int, ...]

_SPACE = re.compile(r"[ \t]*")
_BLANK = re.compile(r"(?:[ \t\r\n,]|#[^\n]*)*")
_BARE_OR_QUOTED = re.compile(r'[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'')
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'', re.DOTALL
)
_SCALAR = re.compile(r"[^,\]}#\n]*")


def lines_of_keys(text: str) -> dict[Place, int]:
    """Return the line (from 1) of every table, key and list item, by its place in the data."""
    return _Walk(text).places()


def line_of(lines: dict[Place, int], place: Place) -> int | None:
    """Return the line of a place, or of the nearest table or key around it."""
    for length in range(len(place), 0, -1):
        if place[:length] in lines:
            return lines[place[:length]]
    return None


class _Walk:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines: dict[Place, int] = {}
        self._counts: dict[Place, int] = {}

    def places(self) -> dict[Place, int]:
        table: Place = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._assignment(table)
            self._skip(_BLANK)
        return self._lines

    def _header(self) -> Place:
        is_list = self._text.startswith("[[", self._at)
        line = self._line()
        self._at += 2 if is_list else 1
        place: Place = ()
        keys = self._keys()
        for key in keys[:-1]:
            place = self._inside_last((*place, key))
        place = (*place, *keys[-1:])
        if is_list:
            self._counts[place] = self._counts.get(place, -1) + 1
            place = (*place, self._counts[place])
        self._lines.setdefault(place, line)
        self._at = self._end_of_line()
        return place

    def _inside_last(self, place: Place) -> Place:
        """Step into the newest table of a list of tables, as TOML does."""
        return (*place, self._counts[place]) if place in self._counts else place

    def _assignment(self, table: Place) -> None:
        line = self._line()
        keys = self._keys()
        if not keys or not self._text.startswith("=", self._at):
            self._at = self._end_of_line()
            return
        self._at += 1
        for length in range(1, len(keys) + 1):
            self._lines.setdefault((*table, *keys[:length]), line)
        self._value((*table, *keys))

    def _value(self, place: Place) -> None:
        self._skip(_SPACE)
        opened = self._text[self._at : self._at + 1]
        if opened == "{":
            self._items(place, "}")
        elif opened == "[":
            self._items(place, "]")
        else:
            matched = _STRING.match(self._text, self._at) or _SCALAR.match(self._text, self._at)
            self._at = matched.end() if matched else self._end_of_line()

    def _items(self, place: Place, closing: str) -> None:
        self._at += 1
        index = 0
        while True:
            self._skip(_BLANK)
            if self._at >= len(self._text):
                return
            if self._text[self._at] == closing:
                self._at += 1
                return
            before = self._at
            if closing == "}":
                self._assignment(place)
            else:
                self._lines.setdefault((*place, index), self._line())
                self._value((*place, index))
            index += 1
            if self._at == before:  # not TOML as we know it: never loop on it
                self._at += 1

    def _keys(self) -> tuple[str, ...]:
        keys: list[str] = []
        while True:
            self._skip(_SPACE)
            matched = _BARE_OR_QUOTED.match(self._text, self._at)
            if not matched:
                return tuple(keys)
            keys.append(matched[0].strip("\"'"))
            self._at = matched.end()
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return tuple(keys)
            self._at += 1

    def _skip(self, pattern: re.Pattern[str]) -> None:
        matched = pattern.match(self._text, self._at)
        if matched:
            self._at = matched.end()

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1

    def _end_of_line(self) -> int:
        end = self._text.find("\n", self._at)
        return len(self._text) if end < 0 else end
