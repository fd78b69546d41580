"""What the pre-start hook prints: progress and warnings on stderr, and its ``--json`` twin."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from prewarm.deploy.outcome import OnMiss, Outcome, Tell

#: Faster than that nobody reads.
_SHOW_S = 0.1


@contextmanager
def progress() -> Iterator[Tell]:
    """Give what shows how far it is: a line on a terminal that is gone in the end, else nothing."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    shown_s = 0.0

    def tell(what: str) -> None:
        nonlocal shown_s
        if time.monotonic() - shown_s >= _SHOW_S:
            shown_s = time.monotonic()
            sys.stderr.write(f"\r\x1b[2Kprewarm: {what}")
            sys.stderr.flush()

    try:
        yield tell
    finally:
        if shown_s:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


def warn(outcome: Outcome, on_miss: OnMiss) -> None:
    """Tell on stderr what was refused and missed, and how each model starts."""
    for line in outcome.warnings:
        click.echo(f"prewarm: warning: {line}", err=True)
    started = {found.model for found in outcome.started}
    for miss in outcome.misses:
        if miss.model in started:
            click.echo(f"prewarm: warning: {miss.error}; starting from its bundle", err=True)
        else:
            way = "starting without compiling" if on_miss == "eager" else "starting cold"
            click.echo(f"prewarm: warning: {miss.error}; {way}", err=True)


def to_dict(outcome: Outcome, into: Path) -> dict[str, object]:
    """Return the outcome as it stands in JSON."""
    return {
        "into": str(into),
        "tree": str(outcome.prepared.tree) if outcome.prepared else None,
        "filled": outcome.prepared.filled if outcome.prepared else False,
        "put_back": outcome.prepared.put_back if outcome.prepared else 0,
        "variables": outcome.variables,
        "models": [
            {
                "model": found.model,
                "status": str(found.published.entry.status),
                "bundle": found.published.entry.bundle.sha256,
                "environment": found.published.entry.environment,
                "requires": list(found.published.entry.requires),
                "caveat": str(found.caveat) if found.caveat else None,
            }
            for found in outcome.started
        ],
        "misses": [
            {"model": miss.model, "code": miss.error.code, "message": str(miss.error)}
            for miss in outcome.misses
        ],
        "warnings": list(outcome.warnings),
    }
