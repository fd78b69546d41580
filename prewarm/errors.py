"""The errors of prewarm: one base, a subclass for each party that can act on it.

Every message is one line that names what was found, where, and what to do. ``cli/main.py`` is the
one place that turns an error into an exit code; nothing else catches ``PrewarmError`` to log it and
go on without keeping the reason.

Exit codes (stable, documented in the README): 0 done, 1 an expected failure, 2 wrong usage, 3 not
warm, 4 environment differs, 5 no trusted manifest, 126 and 127 the command of ``exec`` cannot be
started, 130 interrupted.
"""

from __future__ import annotations

from prewarm.plain_text import made_plain


class PrewarmError(Exception):
    """An expected failure that is told in one line.

    ``code`` is the stable word for programs; ``exit_code`` what a command ends with.
    """

    code = "error"
    exit_code = 1

    def __init__(self, message: str, *, code: str | None = None) -> None:
        # A name on disk or a child's words may hold what a terminal would act on.
        super().__init__(made_plain(" ".join(message.split()), "?"))
        if code is not None:
            self.code = code


class ConfigError(PrewarmError):
    """A declaration, flag, variable or configuration file is wrong."""

    code = "bad_declaration"


class RegistryError(PrewarmError):
    """A checkpoint in the registry cannot be used as it lies there."""

    code = "bad_checkpoint"


class CompileFailed(PrewarmError):
    """A child that compiles or proves ended without a usable answer."""

    code = "build_failed"


class NoSpace(PrewarmError):
    """A disk is full or has too little room for the next step."""

    code = "no_space"


class NotWritable(PrewarmError):
    """A directory that prewarm must write to cannot be written."""

    code = "not_writable"


class LockHeld(PrewarmError):
    """Another prewarm works on the same state directory."""

    code = "lock_held"


class LostLease(PrewarmError):
    """An entry was moved by somebody else, or a move is not allowed from its status."""

    code = "lost_lease"


class StoreCorrupt(PrewarmError):
    """A bundle, listing or database does not hold what its name or digest promises."""

    code = "corrupt"


class ManifestUnavailable(PrewarmError):
    """No manifest that the reader may trust could be read."""

    code = "no_manifest"
    exit_code = 5


class NotWarm(PrewarmError):
    """The model has no bundle that starts warm here."""

    code = "not_warm"
    exit_code = 3


class EnvironmentDiffers(PrewarmError):
    """The machine or interpreter differs from every published environment."""

    code = "environment_differs"
    exit_code = 4


class CommandNotStarted(PrewarmError):
    """The command to start is there and cannot be run; the code is a shell's."""

    code = "command_not_started"
    exit_code = 126


class CommandNotFound(PrewarmError):
    """There is no such command to start; the code is a shell's."""

    code = "command_not_found"
    exit_code = 127


class TooLate(PrewarmError):
    """The process has used torch before, so that a warm start cannot be arranged in it any more."""

    code = "too_late"


class Recompiled(PrewarmError):
    """A call of a loaded model would compile, and was told not to."""

    code = "recompiled"


class PrewarmWarning(UserWarning):
    """Something against a warm start, where the process goes on all the same."""
