"""``prewarm gc``: bundles, logs and what is remembered, brought within their bounds."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import click

from prewarm.build.house import HouseKept, HousePlan, keep_house, plan_house
from prewarm.build.lock import service_holding
from prewarm.build.run import open_run
from prewarm.cli.columns import Cell, aligned
from prewarm.cli.options import example, json_option, settings_options
from prewarm.cli.status import size
from prewarm.config import Settings
from prewarm.errors import LockHeld
from prewarm.store.collect_plan import Going
from prewarm.store.doorbell import Bell, Doorbell
from prewarm.store.view import read_status

_TITLES = ("what", "size", "name", "why")


@click.command("gc", epilog=example("prewarm gc --dry-run", "prewarm gc --json"))
@click.option("--dry-run", is_flag=True, help="Print what would go; change nothing.")
@settings_options
@json_option
def command(settings: Settings, dry_run: bool, as_json: bool) -> None:
    """Remove what nobody needs any more, and what is over the limits of the settings.

    Bundles that no manifest names for `grace_s` go. Over `cache_limit_bytes` the least recently
    used leave the manifest, and their files follow after `grace_s`. Logs go over
    `logs_limit_bytes`, the oldest first. What another builder names, and what is read or worked
    with, stays. A running `prewarm serve` is asked to do it at once.
    """
    # Nothing to collect without a state, and none is made for it.
    read_status(settings.state_dir)
    kept, asked = (None, None) if dry_run else _keep_or_ask(settings)
    planned = plan_house(settings, now_s=time.time()) if kept is None else kept.planned
    if as_json:
        told = {"dry_run": dry_run, "asked": asked, **_as_json(settings, planned, kept)}
        click.echo(json.dumps(told, indent=2))
        return
    rows = [tuple(map(Cell, row)) for row in _rows(planned)]
    if rows:
        click.echo("\n".join(aligned(_TITLES, rows, right=frozenset({"size"}))))
    click.echo(_summary(planned, kept, asked))
    problem = planned.problem if kept is None else kept.problem
    if problem is not None:
        click.echo(problem)


def _keep_or_ask(settings: Settings) -> tuple[HouseKept | None, str | None]:
    """Keep house, or ask the service that works on the state to do so; the second says which."""
    try:
        return _keep(settings), None
    except LockHeld:
        service = service_holding(settings.state_dir)
        if service is None:
            raise
        Doorbell(settings.state_dir).ring(Bell.HOUSE)
        return None, service


def _keep(settings: Settings) -> HouseKept:
    with open_run(
        settings, what="prewarm gc", report=lambda _: None, stop=threading.Event(), now_s=time.time
    ) as bench:
        return keep_house(bench)


def _rows(planned: HousePlan) -> Iterator[tuple[str, str, str, str]]:
    for going in planned.bundles.removed:
        yield "bundle", size(going.bundle.size_bytes), _short(going), going.why
    for going in planned.bundles.evicted:
        why = f"{', '.join(going.models)}: {going.why}"
        yield "entry", size(going.bundle.size_bytes), _short(going), why
    for path, size_bytes in planned.cache.leftovers:
        yield "leftover", size(size_bytes), path.name, "a writer died"
    for log in planned.logs:
        yield "log", size(log.size_bytes), log.path.name, log.why
    if planned.gone:
        yield "digests", "", f"{len(planned.gone)} files", "the files are gone"


def _short(going: Going) -> str:
    return going.bundle.sha256[:16]


def _summary(planned: HousePlan, kept: HouseKept | None, asked: str | None) -> str:
    if kept is None:
        freed = size(_freed(planned))
        text = f"would free {freed}" if asked is None else f"asked {asked} to free {freed}"
        waiting = len(planned.bundles.waiting) + len(planned.bundles.evicted)
    else:
        text, waiting = f"freed {size(kept.freed_bytes)}", kept.collected.waiting
    if waiting:
        bundles = "1 bundle waits" if waiting == 1 else f"{waiting} bundles wait"
        text += f"; {bundles} for the end of the grace period"
    return text


def _freed(planned: HousePlan) -> int:
    bundles = sum(going.bundle.size_bytes for going in planned.bundles.removed)
    leftovers = sum(size_bytes for _, size_bytes in planned.cache.leftovers)
    return bundles + leftovers + sum(log.size_bytes for log in planned.logs)


def _as_json(settings: Settings, planned: HousePlan, kept: HouseKept | None) -> dict[str, Any]:
    bundles = planned.bundles
    return {
        "removed": [_going(going) for going in bundles.removed],
        "evicted": [_going(going) for going in bundles.evicted],
        "waiting": [one.sha256 for one in bundles.waiting],
        "leftovers": [str(path) for path, _ in planned.cache.leftovers],
        "logs": [log.path.name for log in planned.logs],
        "digests": len(planned.gone),
        "queued": [] if kept is None else list(kept.readmitted),
        "freed_bytes": _freed(planned) if kept is None else kept.freed_bytes,
        "bundle_bytes": bundles.stays_bytes,
        "limit_bytes": settings.cache_limit_bytes,
        "problem": planned.problem if kept is None else kept.problem,
    }


def _going(going: Going) -> dict[str, Any]:
    return {
        "bundle": going.bundle.sha256,
        "size_bytes": going.bundle.size_bytes,
        "models": list(going.models),
        "code": going.code,
        "why": going.why,
    }
