"""The user as whom a proof runs.

Another one than the builder where that is possible (design.md §8).
"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from prewarm.build.asking import Desk
from prewarm.config import Settings
from prewarm.errors import ConfigError

#: Who proves when root builds and nothing else is set: a user that owns nothing.
DEFAULT_USER = "nobody"
#: Tells whether a user can run the interpreter and read what a proof needs.
_CAN_READ = "import os, sys; sys.exit(not all(os.access(path, os.R_OK) for path in sys.argv[1:]))"
_TIMEOUT_S = 20.0


def proof_user(settings: Settings, desk: Desk, cache: Path) -> int | None:
    """Return the user id for a proof, its cache handed over to it; None for the builder's own user.

    Only root may change users. The default user is passed over where it cannot use the interpreter,
    the checkpoint or the scratch directory; a user that was asked for by name must be able to.

    Raises:
        ConfigError: the user asked for does not exist or cannot use the interpreter.

    """
    if os.geteuid() != 0:
        return None
    name = settings.proof_user or DEFAULT_USER
    try:
        user = pwd.getpwnam(name).pw_uid
    except KeyError as error:
        if settings.proof_user:
            raise ConfigError(f"proof_user: there is no user {name!r} on this machine") from error
        return None
    inside = desk.checkpoint.iterdir() if desk.checkpoint.is_dir() else ()
    needed = [desk.checkpoint, *inside, desk.copy, cache]
    if user == 0 or not can_use(user, desk.interpreter, needed):
        if settings.proof_user and user != 0:
            raise ConfigError(
                f"proof_user: {name} cannot run {desk.interpreter[0]} or read {desk.checkpoint} "
                f"or {cache}; "
                "open them to that user, or leave proof_user unset"
            )
        return None
    for path in (cache, *cache.rglob("*")):
        os.chown(path, user, -1, follow_symlinks=False)
    return user


def can_use(user: int, interpreter: Sequence[str], paths: Iterable[Path]) -> bool:
    """Tell whether a user can run an interpreter and read paths with it."""
    try:
        done = subprocess.run(
            [*interpreter, "-c", _CAN_READ, *map(str, paths)],
            user=user,
            group=pwd.getpwuid(user).pw_gid,
            extra_groups=(),
            cwd="/",
            env={},
            timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
