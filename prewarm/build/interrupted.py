"""The error of work that was asked to stop."""

from __future__ import annotations

from prewarm.errors import PrewarmError


class Interrupted(PrewarmError):
    """The builder was asked to stop while something was at work."""

    code = "interrupted"
    exit_code = 130
