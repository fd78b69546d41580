"""What ``sitecustomize`` starts in a process: the watcher, when a report is asked for.

Inert without its variables. Standard library only.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .watch import Watcher

#: The watcher of this process, or None; the compile and proof children reach it here.
watcher: Watcher | None = None


def start(environ: Mapping[str, str]) -> Watcher | None:
    """Start watching if ``PREWARM_REPORT_DIR`` names a directory for reports.

    A second call changes nothing.
    """
    global watcher
    directory = environ.get("PREWARM_REPORT_DIR")
    if watcher is not None or not directory:
        return watcher
    from .events import EventLog
    from .watch import Watcher

    watcher = Watcher(EventLog(directory), environ)
    watcher.start()
    return watcher
