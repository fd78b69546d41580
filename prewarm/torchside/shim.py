"""What ``sitecustomize`` starts in a process: the deployment's settings and mends, the watcher.

Inert without its variables. Standard library only. Nothing but a wait for torch is started at once:
a Python that never imports it reads no file and writes none.

- ``PREWARM_DIR`` names a private directory of the hook: its variables are set where they are not,
  and its entries' needs are met (``mends.py``). They are set before torch's own code runs, which is
  early enough for torch and what it loads (``OMP_NUM_THREADS`` too); a library with a thread pool
  of its own that was loaded before torch has read its variables by then.
- ``PREWARM_REPORT_DIR`` names a directory for reports, else there is one below ``PREWARM_DIR``: the
  process is watched.
"""

from __future__ import annotations

import sys

from .imports import when_imported

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from types import ModuleType

    from .deployment import Deployment
    from .events import EventLog
    from .mends import Mends
    from .watch import Watcher

#: The watcher and the mends of this process, or None; the proof child reaches them here.
watcher: Watcher | None = None
mends: Mends | None = None

_waiting = False


def start(environ: MutableMapping[str, str]) -> None:
    """Start what the variables ask for when torch is imported; a second call changes nothing."""
    global _waiting
    if "torch" in sys.modules:
        begin(environ, sys.modules["torch"])
    elif not _waiting:
        _waiting = True
        when_imported(
            frozenset(("torch",)), lambda module: None, lambda module: begin(environ, module)
        )


def begin(environ: MutableMapping[str, str], torch: ModuleType) -> None:
    """Start what the variables ask for now; what fails is told and left as upstream has it."""
    try:
        _begin(environ, torch)
    except Exception as error:  # a shim must never keep a server from importing torch
        sys.stderr.write("prewarm: the shim is off: %s: %s\n" % (type(error).__name__, error))


def _begin(environ: MutableMapping[str, str], torch: ModuleType) -> None:
    global mends, watcher
    log = None if watcher is not None else _event_log(environ)
    deployment = None if mends is not None else _deployment(environ)
    if deployment is not None:
        from .comparison import Comparison
        from .mends import Mends

        tell = log.write if log is not None else _nobody
        comparison = Comparison(deployment, environ, tell)
        mends = Mends(deployment, environ, comparison)
        mends.start(torch)
    if log is None:
        return
    from .watch import Watcher

    watcher = Watcher(log, environ)
    if deployment is not None and deployment.reports:
        from .telling import Telling

        Telling(deployment, log, watcher.look).start()
    watcher.start()


def _deployment(environ: MutableMapping[str, str]) -> Deployment | None:
    directory = environ.get("PREWARM_DIR")
    if not directory:
        return None
    from .deployment import read_deployment

    return read_deployment(directory)


def _event_log(environ: MutableMapping[str, str]) -> EventLog | None:
    from .report_place import report_directory

    directory = report_directory(environ)
    if directory is None:
        return None
    from .events import EventLog

    return EventLog(directory)


def _nobody(event: str, **fields: object) -> None:
    """Tell an event where nothing is reported."""
