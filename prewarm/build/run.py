"""A run: one command's work on the state directory, from the lock to the bench.

Owns what every run does before its own work: nothing else works there, what dead runs left is put
right, and a directory that cannot be written is told before a long build, not after it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from prewarm.build.bench import Bench
from prewarm.build.lock import state_lock
from prewarm.build.pulse import Pulse
from prewarm.build.step import Reporter
from prewarm.build.workspace import Workspace
from prewarm.config import Settings
from prewarm.errors import ConfigError, RegistryError
from prewarm.store.command_path import require_command_path
from prewarm.store.database import DATABASE_NAME, Database
from prewarm.store.leases import leases_directory
from prewarm.store.manifest import manifests_directory
from prewarm.store.timestamp import timestamp
from prewarm.store.whole_file import make_directory, make_writable, remove_parts


@contextlib.contextmanager
def open_run(
    settings: Settings,
    *,
    what: str,
    report: Reporter,
    stop: threading.Event,
    now_s: Callable[[], float],
    alive: Callable[[], None] | None = None,
) -> Iterator[Bench]:
    """Hold the state directory for ``what`` and yield the bench to work on.

    ``alive`` is called now and then while something long is read.

    Raises:
        ConfigError: torch could not compile in the state directory.
        LockHeld: another prewarm works on the state directory.
        NotWritable: it, or the cache_dir, cannot be written.
    """
    require_command_path(settings.state_dir, flag="--state-dir")
    with state_lock(settings.state_dir, what=what, at=timestamp(now_s())):
        make_writable(manifests_directory(settings.cache_dir))
        make_writable(settings.cache_dir / "bundles")
        make_directory(leases_directory(settings.cache_dir))
        remove_parts(settings.state_dir)
        workspace = Workspace(settings.state_dir)
        copy = workspace.open()
        database = Database(settings.state_dir / DATABASE_NAME)
        pulse = Pulse(stop, alive)
        bench = Bench(settings, database, workspace, copy, stop, report, now_s, pulse=pulse)
        database.release_all(bench.at())
        yield bench


def registry_of(settings: Settings) -> Path:
    """Return the registry to look at.

    Raises:
        ConfigError: none is named.
        RegistryError: it is not there.
    """
    if settings.registry is None:
        raise ConfigError("no registry is named; pass --registry DIR or set PREWARM_REGISTRY")
    if not settings.registry.is_dir():
        raise RegistryError(f"registry {settings.registry}: no such directory; pass --registry DIR")
    return settings.registry
