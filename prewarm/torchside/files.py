"""Which files of the cache directories a process created or changed.

Looks at the directories that the process was given and at torch's defaults, since a cache that
"hits" may still write elsewhere (a precompiled header goes to the default directory for another
user). ``locks/`` does not count: a lock is taken on every hit.
"""

from __future__ import annotations

import getpass
import os
import tempfile

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Mapping

    Snapshot = dict[str, tuple[int, int]]

_PASSED_OVER = frozenset(["locks", "__pycache__"])


def watched_directories(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``{label: path}`` of the cache directories of this process and of torch's defaults.

    The defaults follow torch/_inductor/runtime/cache_dir_utils.py and triton/knobs.py (torch 2.9 to
    2.14).
    """
    home = environ.get("TRITON_HOME") or os.path.expanduser("~")
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    found = {
        "inductor": environ.get("TORCHINDUCTOR_CACHE_DIR"),
        "triton": environ.get("TRITON_CACHE_DIR"),
        "default inductor": os.path.join(tempfile.gettempdir(), "torchinductor_" + user),
        "default triton": os.path.join(home, ".triton", "cache"),
    }
    paths: dict[str, str] = {}
    for label, path in found.items():
        if path and path not in paths.values():
            paths[label] = path
    return paths


def snapshot(directory: str) -> Snapshot:
    """Return ``{relative path: (size_bytes, mtime_ns)}`` of the regular files below a directory."""
    seen: Snapshot = {}
    pending = [""]
    while pending:
        relative = pending.pop()
        try:
            entries = os.scandir(os.path.join(directory, relative) if relative else directory)
        except OSError:
            continue
        with entries:
            for entry in entries:
                name = os.path.join(relative, entry.name)
                try:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in _PASSED_OVER:
                            pending.append(name)
                        continue
                    stat = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if not entry.name.endswith((".lock", ".pyc")):
                    seen[name] = (stat.st_size, stat.st_mtime_ns)
    return seen


def changed(before: Snapshot, after: Snapshot) -> list[str]:
    """Return the sorted names that are new in ``after`` or differ in size or time."""
    return sorted(name for name, facts in after.items() if before.get(name) != facts)
