"""What ``sitecustomize`` starts in a process: the deployment's settings and mends, the watcher.

Inert without its variables. Standard library only.

- ``PREWARM_DIR`` names a private directory of the hook: its variables are set where they are not,
  and its entries' needs are met (``mends.py``).
- ``PREWARM_REPORT_DIR`` names a directory for reports, else there is one below ``PREWARM_DIR``: the
  process is watched.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from .mends import Mends
    from .watch import Watcher

#: The watcher and the mends of this process, or None; the proof child reaches them here.
watcher: Watcher | None = None
mends: Mends | None = None


def start(environ: MutableMapping[str, str]) -> None:
    """Start what the variables ask for; a second call changes nothing."""
    _start_mends(environ)
    _start_watching(environ)


def _start_mends(environ: MutableMapping[str, str]) -> None:
    global mends
    directory = environ.get("PREWARM_DIR")
    if mends is not None or not directory:
        return
    from .deployment import read_deployment

    deployment = read_deployment(directory)
    if deployment is None:
        return
    deployment.set_variables(environ)
    from .mends import Mends

    mends = Mends(deployment, environ)
    mends.start()


def _start_watching(environ: MutableMapping[str, str]) -> None:
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
