"""``prewarm scan``: the daemon's work once, in the foreground, with progress."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

from prewarm.build.scan_run import ScanResult, run_scan
from prewarm.cli.options import example, settings_options
from prewarm.cli.progress import Progress
from prewarm.config import Settings


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set; the handlers do nothing else."""
    stop = threading.Event()

    def set_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, set_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@click.command(
    epilog=example("prewarm scan --registry /models", "prewarm scan --registry /models minilm/v1")
)
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@settings_options
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; no progress.")
def scan(settings: Settings, models: tuple[str, ...], as_json: bool) -> None:
    """Build, prove and publish what the registry holds, once, in the foreground.

    Exits 0 only if every entry is warm, else 1. `prewarm status` tells the reasons.
    """
    with stop_on_signals() as stop, Progress(quiet=as_json) as progress:
        result = run_scan(settings, models=models, report=progress, stop=stop)
    if as_json:
        click.echo(json.dumps(_as_json(result), indent=2))
    else:
        _print(result)
    if not result.all_warm:
        raise SystemExit(1)


def _as_json(result: ScanResult) -> dict[str, object]:
    return {
        "entries": [
            {
                "model": entry.model,
                "environment": entry.environment_id,
                "status": entry.status.value,
                "reason": entry.reason,
                "code": entry.code,
                "build_key": entry.build_key,
                "bundle": entry.bundle_sha256,
            }
            for entry in result.entries
        ],
        "undeclared": list(result.undeclared),
        "retired": list(result.retired),
        "seconds": round(result.seconds, 3),
    }


def _print(result: ScanResult) -> None:
    for entry in result.entries:
        tail = f": {entry.reason}" if entry.reason else ""
        click.echo(f"{entry.model}: {entry.status.value}{tail}")
    for name in result.undeclared:
        click.echo(f"{name}: no declaration covers it; `prewarm init {name}` writes a first one")
    for name in result.retired:
        click.echo(f"{name}: retired, it is gone from the registry")
    warm = sum(entry.status.value == "warm" for entry in result.entries)
    click.echo(f"{warm} of {len(result.entries)} entries are warm ({result.seconds:.1f} s)")
