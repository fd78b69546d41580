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
        begin(environ)
    elif not _waiting:
        _waiting = True

        def before(module: ModuleType) -> None:
            begin(environ)

        when_imported(frozenset(("torch",)), lambda module: None, before)


def begin(environ: MutableMapping[str, str]) -> None:
    """Start what the variables ask for now; what fails is told and left as upstream has it."""
    try:
        _begin(environ)
    except Exception as error:  # a shim must never keep a server from importing torch
        sys.stderr.write("prewarm: the shim is off: %s: %s\n" % (type(error).__name__, error))


def _begin(environ: MutableMapping[str, str]) -> None:
    deployment = _start_mends(environ)
    _start_watching(environ, deployment)


def _start_mends(environ: MutableMapping[str, str]) -> Deployment | None:
    global mends
    directory = environ.get("PREWARM_DIR")
    if mends is not None or not directory:
        return None
    from .deployment import read_deployment

    deployment = read_deployment(directory)
    if deployment is None:
        return None
    deployment.set_variables(environ)
    from .mends import Mends

    mends = Mends(deployment, environ)
    mends.start()
    return deployment


def _start_watching(environ: MutableMapping[str, str], deployment: Deployment | None) -> None:
    global watcher
    if watcher is not None:
        return
    from .report_place import report_directory

    directory = report_directory(environ)
    if directory is None:
        return
    from .events import EventLog
    from .watch import Watcher

    watcher = Watcher(EventLog(directory), environ)
    watcher.start()
