"""How long work is shown.

A live line on a terminal, plain lines elsewhere, nothing with ``--json``.
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Self

import click
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from prewarm.build.step import Step

#: Colours of outcomes, on a terminal only.
_COLOURS = {"warm": "green", "partial": "yellow", "uncacheable": "yellow", "failed": "red"}
#: Steps whose details are worth a line of their own where there is no terminal.
_TOLD_PLAINLY = frozenset({"begin", "probe", "cold", "steady", "prove", "settle", "quarantine"})


class Progress:
    """Shows steps on standard error, so that standard output holds results only."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._live: Live | None = None
        self._console = Console(stderr=True)
        if not quiet and self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=8, transient=True)
        self._step: Step | None = None
        self._counts = (0, 0)
        self._started_s = time.monotonic()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()

    def __call__(self, step: Step) -> None:
        """Show a step."""
        if self._quiet:
            return
        with self._lock:
            if step.what == "begin":
                self._started_s = time.monotonic()
                self._counts = (step.done, step.of)
            if step.outcome is not None:
                self._end(step)
            elif self._live:
                self._live.update(self._line(step))
            elif step.what in _TOLD_PLAINLY:
                click.echo(self._plain(step), err=True)

    def _end(self, step: Step) -> None:
        seconds = f"{step.seconds:.1f} s" if step.seconds is not None else ""
        text = f"{step.model}: {step.outcome} after {seconds}" + (
            f": {step.detail}" if step.detail else ""
        )
        if self._live:
            mark = Text(text, style=_COLOURS.get(step.outcome or "", ""))
            self._live.console.print(mark)
        else:
            click.echo(f"[{step.done}/{step.of}] {text}", err=True)

    def _line(self, step: Step) -> Table:
        done, of = self._counts
        table = Table.grid(padding=(0, 1))
        elapsed_s = time.monotonic() - self._started_s
        left = f"{of - done - 1} more to come" if of - done > 1 else ""
        table.add_row(
            Spinner("dots"),
            Text(step.model, style="bold"),
            Text(step.detail or step.what),
            Text(f"{elapsed_s:.0f} s", style="dim"),
            Text(left, style="dim"),
        )
        return table

    def _plain(self, step: Step) -> str:
        done, of = self._counts
        place = f"[{done + 1}/{of}] " if of else ""
        name = f"{step.model}: " if step.model else ""
        return place + name + (step.detail or ("starting" if step.what == "begin" else step.what))


def on_terminal() -> bool:
    """Tell whether standard output is a terminal."""
    return sys.stdout.isatty()
