"""The last step of ``prewarm exec``: this process becomes the server.

Owns what the server gets and must not inherit from us.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from prewarm.deploy.current import REPORTS
from prewarm.deploy.server_command import ServerCommand
from prewarm.errors import CommandNotStarted

#: Where the shim of a process above us reports; the server is a start of its own.
_REPORT_VARIABLE = "PREWARM_REPORT_DIR"
_START = re.compile(r"[0-9]+-[0-9]+")

#: Ignored by each Python from its start on, so they would be ignored by the server too.
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)


def server_environ(environ: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the server's environment: this one, and the hook's variables in it."""
    own = {**environ, **variables}
    place = Path(own.get(_REPORT_VARIABLE, ""))
    if place.parent.name == REPORTS and _START.fullmatch(place.name):
        del own[_REPORT_VARIABLE]
    return own


def become(command: ServerCommand, environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by the command.

    Raises:
        CommandNotStarted: the kernel refuses.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    before = {one: signal.signal(one, signal.SIG_DFL) for one in _PYTHON_IGNORES}
    try:
        os.execve(command.program, command.argv, environ)
    except (OSError, ValueError) as error:
        for one, handler in before.items():
            signal.signal(one, handler)
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise CommandNotStarted(
            f"{command.program} cannot be started: {why}; name a program or a script with a #! "
            "line after `--`"
        ) from error
