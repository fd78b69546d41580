"""``prewarm hook``: the pre-start hook on the command line.

Owns the env file's flags and what is printed; the work is ``deploy/hook.py``'s. Imports nothing
heavy, since a hook with nothing to do answers in under a quarter of a second.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from prewarm.cli.hook_options import HookOptions, hook_options, run_asked
from prewarm.cli.hook_telling import to_dict, warn
from prewarm.cli.options import argv_of, example, json_option
from prewarm.deploy.deployment_file import comment, write_env_file
from prewarm.deploy.env_file import DIALECTS, Dialect, env_text, source_command
from prewarm.deploy.kept_out import without_shim
from prewarm.deploy.outcome import OnMiss, Outcome
from prewarm.deploy.server_command import isolating_flag
from prewarm.deploy.untold import tell_untold
from prewarm.errors import PrewarmError


@click.command(
    "hook",
    epilog=example(
        "prewarm hook minilm/v1 --into /run/minilm --env-file /run/minilm.env",
        "prewarm hook minilm/v1 --on-miss fail",
    ),
)
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--env-file",
    type=click.Path(path_type=Path),
    help="Write the variables here, for the server's start.",
)
@click.option(
    "--format", "dialect", type=click.Choice(DIALECTS), default="systemd", help="Of the env file."
)
@hook_options
@json_option
def command(
    models: tuple[str, ...],
    env_file: Path | None,
    dialect: Dialect,
    asked: HookOptions,
    as_json: bool,
) -> int:
    """Make the next start of a server warm: check, unpack, and say which variables to set.

    Fills a private directory from the published bundles of the models, once, repairs it when needed
    and writes an env file. A cache never takes a service down: without --on-miss fail the hook
    warns, exits 0 and lets the server start cold.
    """
    untold = tell_untold(asked.directory(models), now_s=time.time())
    outcome = run_asked(models, asked)
    flag = isolating_flag(argv_of(asked.interpreter)[1:])
    outcome = without_shim(outcome, flag and f"-{flag}", on_miss=asked.on_miss)
    warn(outcome, asked.on_miss)
    if untold is not None:
        click.echo(f"prewarm: warning: {untold}", err=True)
    if env_file is not None:
        _write(env_file, outcome, dialect, models, asked.on_miss)
    if as_json:
        click.echo(json.dumps(to_dict(outcome, asked.directory(models)), indent=2))
    elif env_file is None:
        text = env_text(outcome.variables, dialect, comment=comment(outcome.variables, models))
        click.echo(text, nl=False)
    else:
        _print_started(outcome, env_file, dialect)
    return 0


def _write(
    env_file: Path, outcome: Outcome, dialect: Dialect, models: tuple[str, ...], on_miss: OnMiss
) -> None:
    try:
        write_env_file(env_file, outcome.variables, dialect, models)
    except PrewarmError as error:
        if on_miss == "fail":
            raise
        click.echo(f"prewarm: warning: {error}; the env file is not written", err=True)


def _print_started(outcome: Outcome, env_file: Path, dialect: Dialect) -> None:
    for found in outcome.started:
        status = found.published.entry.status
        click.echo(f"{found.model}: {status} from {found.published.entry.bundle.sha256[:12]}")
    if outcome.prepared is not None and outcome.prepared.put_back:
        click.echo(f"{outcome.prepared.put_back} files were put back")
    if outcome.variables:
        how = f"--env-file {env_file}" if dialect == "docker" else source_command(env_file)
        click.echo(f"start the server with: {how}")
