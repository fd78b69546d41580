"""What ``sitecustomize`` starts in a process: the watcher, when a report is asked for.

Inert without its variables. Standard library only.
"""

#: The watcher of this process, or None; the compile and proof children reach it here.
watcher = None


def start(environ):
    """Start watching if ``PREWARM_REPORT_DIR`` names a directory for reports; a second call changes nothing."""
    global watcher
    directory = environ.get("PREWARM_REPORT_DIR")
    if watcher is not None or not directory:
        return watcher
    from .events import EventLog
    from .watch import Watcher

    watcher = Watcher(EventLog(directory), environ)
    watcher.start()
    return watcher
