"""``prewarm status``: every entry with its status and reason, its seconds, speed, size and age.

Owns the listing. Reads the database through ``store/view.py``, which starts fast and never writes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from prewarm.cli.again import again, changes
from prewarm.cli.build_log import FollowedLogs, log_end
from prewarm.cli.columns import Cell, aligned
from prewarm.cli.options import example, json_option, settings_flags
from prewarm.cli.starts import (
    TOLD_STARTS,
    age_s,
    last_start,
    missing_note,
    start_lines,
    starts_fields,
)
from prewarm.cli.starts import as_json as starts_as_json
from prewarm.cli.status_fields import (
    differences,
    quarantine_fields,
    speed,
    status_fields,
    with_several_environments,
)
from prewarm.config import load_settings
from prewarm.environment import short_of
from prewarm.errors import RegistryError
from prewarm.store.house_note import HouseNote, read_house_note
from prewarm.store.quarantine import Quarantine, read_quarantine
from prewarm.store.starts_view import read_starts
from prewarm.store.status import Status
from prewarm.store.timestamp import epoch_seconds
from prewarm.store.view import StatusRow, read_environments, read_status

COLOURS = {
    "warm": "green",
    "partial": "yellow",
    "uncacheable": "yellow",
    "stale": "yellow",
    "failed": "red",
    "retired": "bright_black",
}

#: What tells an environment from the model's others is cut here; ``--json`` has the whole.
_WIDEST = 48

_TITLES = ("model", "status", "cold", "warm", "speed", "size", "age", "reason")
_RIGHT = frozenset({"cold", "warm", "size", "age"})


@click.command("status", epilog=example("prewarm status", "prewarm status minilm/v1 --log --watch"))
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--log", "with_log", is_flag=True, help="Print the end of each build's log.")
@click.option("--watch", is_flag=True, help="Go on showing what changes, with --log the logs too.")
@settings_flags()
@json_option
def command(
    models: tuple[str, ...], with_log: bool, watch: bool, flags: dict[str, object], as_json: bool
) -> None:
    """Show every entry: its status and why, cold and warm seconds, speed over eager, size, age.

    MODEL is a name or an alias; then its last starts are told one by one, with what to declare for
    calls that they compiled. A build that runs shows its log as far as it is; `--watch` goes on
    until it is interrupted.
    """
    settings = load_settings(flags, os.environ)

    def look() -> Shown:
        return _look(settings.state_dir, models, as_json=as_json)

    shown = look()
    if as_json:
        click.echo(json.dumps(_as_json(shown), indent=None if watch else 2))
    else:
        click.echo(_as_text(shown, models))
        if with_log:
            for entry in shown.entries:
                click.echo(log_end(entry))
    if not watch:
        return
    if as_json:
        for later in changes(shown, look, of=_as_json):
            click.echo(json.dumps(_as_json(later)))
    elif with_log:
        logs = FollowedLogs(shown.entries)
        for later in again(look):
            for text in logs.news(later.entries):
                click.echo(text, nl=False)
    elif sys.stdout.isatty():
        for later in again(look):
            click.clear()
            click.echo(_as_text(later, models))
    else:
        for later in changes(shown, look, of=_as_json):
            click.echo(_as_text(later, models))


@dataclass(frozen=True, slots=True)
class Shown:
    """What there is to be shown at one moment."""

    entries: list[dict[str, Any]]
    quarantine: Quarantine
    house: HouseNote | None


def _look(state_dir: Path, models: tuple[str, ...], *, as_json: bool) -> Shown:
    rows = _wanted([row for row in read_status(state_dir) if _matters(row)], models)
    # The table says of each entry what its last start was.
    each = TOLD_STARTS if models or as_json else 1
    return Shown(
        _entries(rows, state_dir, each), read_quarantine(state_dir), read_house_note(state_dir)
    )


def _as_json(shown: Shown) -> dict[str, Any]:
    return {
        "entries": [starts_as_json(entry) for entry in shown.entries],
        "quarantine": quarantine_fields(shown.quarantine),
        "house": None if shown.house is None else asdict(shown.house),
    }


def _as_text(shown: Shown, models: tuple[str, ...]) -> str:
    if not shown.entries:
        return "nothing is known yet; run `prewarm scan`"
    lines = _table(shown.entries, time.time())
    if shown.quarantine.bundles:
        lines.append(_footer(shown.quarantine))
    if shown.house is not None and shown.house.problem is not None:
        lines.append(shown.house.problem)
    for entry in shown.entries if models else ():
        lines += start_lines(entry)
    return "\n".join(lines)


def _table(entries: Sequence[Mapping[str, Any]], now_s: float) -> list[str]:
    rows = [_cells(entry, now_s) for entry in entries]
    titles: tuple[str, ...] = _TITLES
    if any(entry["starts"] for entry in entries):
        cells = [Cell(_last_start(entry, now_s)) for entry in entries]
        titles, rows = (*titles[:-1], "last start", titles[-1]), _with(rows, cells, at=-1)
    if any(entry["differs_in"] for entry in entries):
        cells = [Cell(_cut(short_of(entry["differs_in"]))) for entry in entries]
        titles, rows = (titles[0], "environment", *titles[1:]), _with(rows, cells, at=1)
    return aligned(titles, rows, right=_RIGHT)


def _with(
    rows: Sequence[tuple[Cell, ...]], cells: Sequence[Cell], *, at: int
) -> list[tuple[Cell, ...]]:
    return [(*row[:at], cell, *row[at:]) for row, cell in zip(rows, cells, strict=True)]


def _last_start(entry: Mapping[str, Any], now_s: float) -> str:
    return last_start(entry, age(age_s(entry, now_s))) if entry["starts"] else ""


def _entries(rows: Sequence[StatusRow], state_dir: Path, each: int) -> list[dict[str, Any]]:
    starts = read_starts(state_dir, each=each)
    several = with_several_environments(row for row in rows if row.environment_id)
    # Nearly always a model has one environment, and then its facts are not asked for.
    apart = differences(several, read_environments(state_dir)) if several else {}
    return [
        {
            **status_fields(row, apart.get((row.model, row.environment_id), {})),
            **starts_fields(starts.get((row.model, row.environment_id)), row),
        }
        for row in rows
    ]


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _matters(row: StatusRow) -> bool:
    # An entry of no environment tells that a declaration was wrong; retired, it tells nothing.
    return bool(row.environment_id) or row.status != Status.RETIRED


def _wanted(rows: Sequence[StatusRow], models: Sequence[str]) -> Sequence[StatusRow]:
    if not models:
        return rows
    names = [model.strip("/") for model in models]
    for name in names:
        if not any(name in (row.model, *row.aliases) for row in rows):
            raise RegistryError(
                f"{name}: no such model; see `prewarm status`", code="unknown_model"
            )
    return [row for row in rows if not {row.model, *row.aliases}.isdisjoint(names)]


def _cells(entry: Mapping[str, Any], now_s: float) -> tuple[Cell, ...]:
    bundle = entry["bundle"]
    return (
        Cell(entry["model"]),
        Cell(entry["status"], COLOURS.get(entry["status"])),
        Cell(_seconds(entry["cold_s"])),
        Cell(_seconds(entry["warm_s"])),
        Cell(speed(entry)),
        Cell(size(bundle["size_bytes"]) if bundle else ""),
        Cell(age(now_s - epoch_seconds(entry["updated_at"]))),
        Cell(_reason(entry, now_s)),
    )


def _reason(entry: Mapping[str, Any], now_s: float) -> str:
    notes = [entry["reason"]] if entry["reason"] else []
    if entry["requires"]:
        notes.append(f"warm only with the {', '.join(entry['requires'])}")
    if entry["covers"] == "declared order":
        notes.append("covers the declared order only")
    if entry["next_try_at"] is not None:
        notes.append(_next_try(entry, epoch_seconds(entry["next_try_at"]) - now_s))
    notes += [missing_note(missing) for missing in entry["missing"][:1]]
    return "; ".join(notes)


def _next_try(entry: Mapping[str, Any], wait_s: float) -> str:
    times = "once" if entry["attempts"] == 1 else f"{entry['attempts']} times"
    when = "now" if wait_s <= 0 else f"in {age(wait_s)}"
    return f"tried {times}, `prewarm serve` tries again {when}"


def _footer(quarantine: Quarantine) -> str:
    count = "1 bundle" if quarantine.bundles == 1 else f"{quarantine.bundles} bundles"
    return (
        f"in quarantine: {count}, {size(quarantine.size_bytes or 0)}, "
        f"in {quarantine.directory}; the note beside each says why"
    )


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"


def size(size_bytes: int) -> str:
    """Say a size in the unit that people would use."""
    value = float(size_bytes)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def age(seconds: float) -> str:
    """Say how long ago something was, in one unit."""
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length_s:
            return f"{int(seconds // length_s)} {unit}"
    return f"{max(0, int(seconds))} s"
