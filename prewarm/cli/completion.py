"""``prewarm completion``: the script that makes a shell complete prewarm's commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from prewarm.cli.options import example


@click.command(
    "completion",
    epilog=example('eval "$(prewarm completion bash)"', "prewarm completion fish | source"),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL."""
    kind = get_completion_class(shell)
    assert kind is not None, shell
    root = ctx.find_root().command
    # The variable by which click's script asks the program back.
    click.echo(kind(root, {}, "prewarm", "_PREWARM_COMPLETE").source())
