"""``prewarm retry``: what failed, or left for want of room, is queued again."""

from __future__ import annotations

import json
import time

import click

from prewarm.cli.options import example, json_option, settings_options
from prewarm.config import Settings
from prewarm.errors import RegistryError
from prewarm.store.database import DATABASE_NAME, Database
from prewarm.store.doorbell import Bell, Doorbell
from prewarm.store.timestamp import timestamp
from prewarm.store.view import read_status


@click.command("retry", epilog=example("prewarm retry", "prewarm retry minilm/v1"))
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@settings_options
@json_option
def command(settings: Settings, models: tuple[str, ...], as_json: bool) -> None:
    """Queue again what failed or left for want of room, of MODEL or of all, as if never tried.

    A running `prewarm serve` takes it up at once; else the next `prewarm scan` does.
    """
    wanted = _names(settings, models)
    with Database(settings.state_dir / DATABASE_NAME) as database:
        queued = database.retry(wanted, at=timestamp(time.time()))
    if queued:
        Doorbell(settings.state_dir).ring(Bell.LOOK)
    if as_json:
        click.echo(json.dumps({"queued": list(queued)}, indent=2))
        return
    for model in queued:
        click.echo(f"{model}: queued")
    for name in sorted(set(wanted or ()) - set(queued)):
        click.echo(f"{name}: neither failed nor left for want of room; see `prewarm status {name}`")
    if not queued and wanted is None:
        click.echo("nothing failed or left for want of room")


def _names(settings: Settings, models: tuple[str, ...]) -> list[str] | None:
    """Return the names of the models, which may be given by an alias; None for all.

    Raises:
        RegistryError: there is no such model.
        PrewarmError: there is no state yet.
    """
    rows = read_status(settings.state_dir)
    names: set[str] = set()
    for model in (model.strip("/") for model in models):
        found = {row.model for row in rows if model in (row.model, *row.aliases)}
        if not found:
            raise RegistryError(
                f"{model}: no such model; see `prewarm status`", code="unknown_model"
            )
        names |= found
    return sorted(names) if models else None
