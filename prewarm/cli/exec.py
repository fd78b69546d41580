"""``prewarm exec``: the pre-start hook, then the server in place of this process.

Owns the ``--`` and what is told before the server starts. Imports nothing heavy.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from dataclasses import replace

import click
from click.shell_completion import CompletionItem

from prewarm.cli.hook_options import HookOptions, hook_options, run_asked
from prewarm.cli.hook_telling import warn
from prewarm.cli.options import example
from prewarm.deploy.exec import become, server_environ
from prewarm.deploy.kept_out import without_shim
from prewarm.deploy.server_command import find_command
from prewarm.deploy.untold import tell_untold

_DASHES = "--"
_COMMAND = "prewarm.exec.command"


class _BeforeDashes(click.Command):
    """A command whose options end at ``--``; what follows is another program's own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what follows ``--`` for ``command`` and parse the rest."""
        if _DASHES in args:
            at = args.index(_DASHES)
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Show the ``--`` in the usage line."""
        return [*super().collect_usage_pieces(ctx), "-- COMMAND..."]


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")] if _COMMAND in ctx.meta else []


@click.command(
    "exec",
    cls=_BeforeDashes,
    epilog=example(
        "prewarm exec minilm/v1 -- python serve.py --port 8000",
        "prewarm exec minilm/v1 --on-miss fail -- /srv/app/.venv/bin/uvicorn app:app",
    ),
)
@click.argument("models", nargs=-1, required=True, metavar="MODEL...", shell_complete=_complete)
@hook_options
@click.pass_context
def command(ctx: click.Context, models: tuple[str, ...], asked: HookOptions) -> None:
    """Make a server start warm, and start it: the hook, then COMMAND with its environment.

    COMMAND takes the place of this process, with its arguments as they are. Its Python, where it is
    one or a script of one, is the interpreter that is compared, unless --interpreter names another.
    What is missed is told on stderr; without --on-miss fail the server starts all the same.
    """
    argv = ctx.meta.get(_COMMAND)
    if not argv:
        raise click.UsageError("no command to start; write it after `--`", ctx)
    found = find_command(argv, os.environ)
    python = str(found.python or "")
    if python and not asked.interpreter and python != sys.executable:
        asked = replace(asked, interpreter=shlex.quote(python))
    untold = tell_untold(asked.directory(models), now_s=time.time())
    outcome = run_asked(models, asked)
    outcome = without_shim(outcome, found.isolating, on_miss=asked.on_miss)
    warn(outcome, asked.on_miss)
    if untold is not None:
        click.echo(f"prewarm: warning: {untold}", err=True)
    become(found, server_environ(os.environ, outcome.variables))
