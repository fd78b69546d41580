"""``prewarm verify``: the proof of what is published once more, here."""

from __future__ import annotations

import json

import click

from prewarm.build.verify_run import run_verify
from prewarm.cli.options import example, json_option, settings_options
from prewarm.cli.progress import Progress
from prewarm.cli.scan import stop_on_signals
from prewarm.config import Settings


@click.command(
    "verify", epilog=example("prewarm verify minilm/v1", "prewarm verify --registry /models --json")
)
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@settings_options
@json_option
def command(settings: Settings, models: tuple[str, ...], as_json: bool) -> int:
    """Prove again, on this builder, that a start from the published bundle compiles nothing.

    MODEL is a name or an alias; without one, all that is published for this environment. A bundle
    that is damaged or fails leaves the manifest, goes into quarantine and is built again by the
    next scan. A proof that does not come to its end changes nothing. Ends with 1 unless every model
    was proven warm.
    """
    with stop_on_signals() as stop, Progress(quiet=as_json) as progress:
        verified = run_verify(settings, models=models, report=progress, stop=stop)
    if as_json:
        click.echo(json.dumps({"entries": [one.to_dict() for one in verified]}, indent=2))
    else:
        for one in verified:
            click.echo(one.sentence())
    return 0 if all(one.is_warm for one in verified) else 1
