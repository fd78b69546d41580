"""Globs over paths inside the registry: ``*`` and ``?`` within one segment, ``**`` any depth.

Owns the translation and nothing of the file system: names are compared, never listed.
"""

from __future__ import annotations

import fnmatch
import functools
import re

_ANY_DEPTH = "**"


def matches(pattern: str, path: str) -> bool:
    """Say whether a path (segments joined by "/", "." for the directory itself) fits a pattern."""
    segments = () if path in (".", "") else tuple(path.split("/"))
    return _fits(_segments(pattern), segments)


def is_literal(pattern: str) -> bool:
    """Say whether a pattern names one path only."""
    return not any(character in pattern for character in "*?[")


@functools.lru_cache(maxsize=1024)
def _segments(pattern: str) -> tuple[str, ...]:
    return tuple(segment for segment in pattern.split("/") if segment not in ("", "."))


def _fits(pattern: tuple[str, ...], segments: tuple[str, ...]) -> bool:
    # Positions in the pattern that the segments so far can have led to: linear, however many `**`.
    reached = _with_skips(pattern, {0})
    for segment in segments:
        following = set()
        for position in reached:
            if position == len(pattern):
                continue
            if pattern[position] == _ANY_DEPTH:
                following.add(position)
            elif _compiled(pattern[position]).fullmatch(segment):
                following.add(position + 1)
        reached = _with_skips(pattern, following)
    return len(pattern) in reached


def _with_skips(pattern: tuple[str, ...], positions: set[int]) -> set[int]:
    """Add what ``**`` reaches by standing for nothing."""
    reached = set(positions)
    for position in sorted(positions):
        while position < len(pattern) and pattern[position] == _ANY_DEPTH:
            position += 1
            reached.add(position)
    return reached


@functools.lru_cache(maxsize=1024)
def _compiled(segment: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(segment))
