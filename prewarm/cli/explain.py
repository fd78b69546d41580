"""``prewarm explain``: would a model start warm here, and if not, what differs.

Owns the printing, and the child that ``--deep`` asks; the comparison is ``deploy/explain.py``'s.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from prewarm.cli.columns import Cell, aligned
from prewarm.cli.options import (
    argv_of,
    example,
    json_option,
    manifest_option,
    settings_flags,
    settings_to_read,
    trust_option,
)
from prewarm.deploy.deadline import Deadline
from prewarm.deploy.explain import Explanation, Here, explain
from prewarm.deploy.keep import keep_for
from prewarm.deploy.opened_source import open_source
from prewarm.deploy.outcome import TIMEOUT_S
from prewarm.deploy.published import Published
from prewarm.environment import Difference

#: A value that is longer is cut in the table; ``--json`` has the whole.
_WIDEST = 48

_TITLES = ("fact", "recorded", "here", "cost")


@click.command(
    "explain",
    epilog=example(
        "prewarm explain minilm/v1",
        "prewarm explain minilm/v1 --interpreter /srv/app/.venv/bin/python --deep",
    ),
)
@click.argument("model")
@click.option("--interpreter", default="", help="The server's Python, as a command line.")
@manifest_option
@trust_option
@click.option("--deep", is_flag=True, help="Ask torch itself too, in a child: takes seconds.")
@settings_flags()
@json_option
def command(
    model: str,
    interpreter: str,
    manifest: str | None,
    trust: tuple[str, ...],
    deep: bool,
    flags: dict[str, object],
    as_json: bool,
) -> int:
    """Tell whether a model would start warm here, and name each fact that differs if not.

    Compares what was recorded with this machine, this interpreter, these variables and, where it is
    here, the registry. MODEL is a name, an alias or a path. Ends with 1 if it would not start warm.
    """
    argv = argv_of(interpreter)
    address, settings = settings_to_read(manifest, {**flags, "trust": trust})
    source = open_source(
        address,
        keep_for(os.environ, Path(os.devnull)),
        Deadline(TIMEOUT_S),
        trust=settings.trust if settings else trust,
        token_file=settings.token_file if settings else None,
    )
    places = (settings.registry, settings.state_dir) if settings else (None, None)
    here = Here(argv, os.environ, *places)

    def ask(published: Published) -> Mapping[str, Any]:
        # The builder's side starts children; without --deep none of it is imported.
        from prewarm.build.asking_deep import ask_deep

        return ask_deep(published.entry.variables, published.environment, argv, os.environ)

    told = explain(model, source, here, ask_deep=ask if deep else None)
    if as_json:
        click.echo(json.dumps(_to_dict(told), indent=2))
    else:
        _print(told)
    return 0 if told.warm else 1


def _print(told: Explanation) -> None:
    if told.warm:
        click.echo(click.style(told.sentence(), fg="green"))
    else:
        reason = f": {told.reason}" if told.reason and not told.differences else ""
        click.echo(click.style(f"{told.model}: would not start warm here{reason}", fg="red"))
    if told.differences:
        click.echo("\n".join(aligned(_TITLES, [_cells(one) for one in told.differences])))
        if told.reason:
            click.echo(f"and by itself: {told.reason}")
    if told.implied:
        click.echo(f"which follows from these: {', '.join(one.fact for one in told.implied)}")
    if told.differences:
        click.echo(f"-> {_next_step(told)}")
    for line in told.warnings:
        click.echo(f"{click.style('note', fg='yellow')}: {line}")


def _cells(one: Difference) -> tuple[Cell, ...]:
    return (
        Cell(one.fact, "yellow"),
        Cell(_short(one.recorded)),
        Cell(_short(one.present)),
        Cell(one.cost),
    )


def _short(value: str | None) -> str:
    if not value:
        return "(none)" if value is None else "(empty)"
    return value if len(value) <= _WIDEST else value[: _WIDEST - 1] + "…"


def _next_step(told: Explanation) -> str:
    if told.code == "fatal_variable":
        return "unset these variables for the server"
    if told.code == "declaration_changed":
        return "run `prewarm scan` to build it as it is declared now, or undo the change"
    return "make these alike, or run `prewarm scan` here to build for this environment"


def _to_dict(told: Explanation) -> dict[str, object]:
    return {
        "model": told.model,
        "warm": told.warm,
        "status": told.status,
        "reason": told.reason,
        "code": told.code,
        "differences": [one.to_dict() for one in told.differences],
        "implied": [one.to_dict() for one in told.implied],
        "warnings": list(told.warnings),
        "equal": told.equal,
        "proved_at": told.proved_at,
        "environment": told.environment,
    }
