"""Doctor's check of the watching: inotify or polling, why, and how near the kernel's limit is."""

from __future__ import annotations

from prewarm.cli.finding import Finding
from prewarm.config import Settings
from prewarm.registry.watch_method import POLL_S, choose_method, enough, watch_limit_name

#: Beyond this share of the limit other programs of the same user may leave too few watches.
NEAR = 0.8


def check_watching(settings: Settings) -> list[Finding]:
    """Tell how ``prewarm serve`` would watch the registry; nothing where there is none."""
    registry = settings.registry
    try:
        if registry is None or not registry.is_dir():
            return []
    except PermissionError:
        return []
    method = choose_method(registry)
    if method.kind == "polling":
        told = f"polling every {POLL_S:g} s: {method.why}"
        return [Finding("watching", "warn" if method.next_step else "ok", told, method.next_step)]
    told = f"inotify: {method.directories:,} directories"
    if method.limit is None:
        return [Finding("watching", "ok", told)]
    told += f" of {method.limit:,} that may be watched ({watch_limit_name()})"
    if method.directories > NEAR * method.limit:
        step = f"sysctl {watch_limit_name()}={enough(method.directories, method.limit)}"
        return [Finding("watching", "warn", told, step)]
    return [Finding("watching", "ok", told)]
