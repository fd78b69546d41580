"""``prewarm hook``: the pre-start hook on the command line.

Owns the flags and what is printed; the work is ``deploy/hook.py``'s. Imports nothing heavy, since
a hook with nothing to do answers in under a quarter of a second.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import click

from prewarm.cli.options import argv_of, example, json_option, settings_flags, settings_to_read
from prewarm.config import user_cache_dir
from prewarm.deploy.env_file import DIALECTS, Dialect, env_text, source_command
from prewarm.deploy.hook import OnMiss, Outcome, Wanted, comment, missed, run_hook, write_env_file
from prewarm.errors import PrewarmError

_PATH = click.Path(path_type=Path)


@click.command(
    "hook",
    epilog=example(
        "prewarm hook minilm/v1 --into /run/minilm --env-file /run/minilm.env",
        "prewarm hook minilm/v1 --on-miss fail",
    ),
)
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--into", type=_PATH, help="The private directory. Default: in the user's cache.")
@click.option("--env-file", type=_PATH, help="Write the variables here, for the server's start.")
@click.option(
    "--format", "dialect", type=click.Choice(DIALECTS), default="systemd", help="Of the env file."
)
@click.option("--manifest", help="The cache directory to read. Default: --cache-dir.")
@click.option(
    "--on-miss",
    type=click.Choice(["cold", "eager", "fail"]),
    default="cold",
    help="Without a warm bundle: start cold (default), without compiling, or fail (exit 3, 4, 5).",
)
@click.option("--interpreter", default="", help="The server's Python, as a command line.")
@settings_flags()
@json_option
def command(
    models: tuple[str, ...],
    into: Path | None,
    env_file: Path | None,
    dialect: Dialect,
    manifest: str | None,
    on_miss: OnMiss,
    interpreter: str,
    flags: dict[str, object],
    as_json: bool,
) -> int:
    """Make the next start of a server warm: check, unpack, and say which variables to set.

    Fills a private directory from the published bundles of the models, once, repairs it when needed
    and writes an env file. A cache never takes a service down: without --on-miss fail the hook
    warns, exits 0 and lets the server start cold.
    """
    argv = argv_of(interpreter)
    directory = (into or _default_into(models)).absolute()
    try:
        cache_dir, settings = settings_to_read(manifest, flags)
        registry = settings.registry if settings else None
        wanted = Wanted(models, directory, cache_dir, argv, on_miss, registry)
        outcome = run_hook(wanted, os.environ)
    except Exception as error:
        if on_miss == "fail" or os.environ.get("PREWARM_TRACEBACK"):
            raise
        outcome = missed(error, on_miss)
    _warn(outcome, on_miss)
    if env_file is not None:
        _write(env_file, outcome, dialect, models, on_miss)
    if as_json:
        click.echo(json.dumps(_to_dict(outcome, directory), indent=2))
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


def _default_into(models: tuple[str, ...]) -> Path:
    names = "\n".join(sorted(models))
    digest = hashlib.sha256(names.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return user_cache_dir(os.environ) / "deployments" / digest


def _warn(outcome: Outcome, on_miss: OnMiss) -> None:
    for line in outcome.warnings:
        click.echo(f"prewarm: warning: {line}", err=True)
    started = {found.model for found in outcome.started}
    for miss in outcome.misses:
        if miss.model in started:
            click.echo(f"prewarm: warning: {miss.error}; starting from its bundle", err=True)
        else:
            way = "starting without compiling" if on_miss == "eager" else "starting cold"
            click.echo(f"prewarm: warning: {miss.error}; {way}", err=True)


def _print_started(outcome: Outcome, env_file: Path, dialect: Dialect) -> None:
    for found in outcome.started:
        status = found.published.entry.status
        click.echo(f"{found.model}: {status} from {found.published.entry.bundle.sha256[:12]}")
    if outcome.prepared is not None and outcome.prepared.put_back:
        click.echo(f"{outcome.prepared.put_back} files were put back")
    if outcome.variables:
        how = f"--env-file {env_file}" if dialect == "docker" else source_command(env_file)
        click.echo(f"start the server with: {how}")


def _to_dict(outcome: Outcome, into: Path) -> dict[str, object]:
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
