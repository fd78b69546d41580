"""The command ``prewarm``: its table of commands, and where errors become exit codes.

A command's module is imported when it is run, so that ``hook`` and ``status`` start fast. Each
module holds a click command called like itself, or ``command``; it may return its exit code.

Exit codes: 0 done, 1 an expected failure, 2 wrong usage, 3 not warm, 4 environment differs, 5 no
trusted manifest, 130 interrupted.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from prewarm import __version__
from prewarm.errors import PrewarmError

#: Commands in the order in which they are needed, each with the line that ``--help`` shows.
COMMANDS: dict[str, str] = {
    "demo": "Show the whole story on a small registry made on the spot.",
    "init": "Write a first prewarm.toml for a checkpoint.",
    "scan": "Compile and prove what is new in the registry, once.",
    "serve": "Watch the registry and keep every model warm: the daemon.",
    "status": "Show every model: warm or not, and why.",
    "hook": "Make a deployment start warm: the pre-start hook.",
    "exec": "Make a server start warm, and start it.",
    "explain": "Tell whether a model would start warm here, and what differs.",
    "verify": "Prove what is published once more, here.",
    "drift": "Tell what a deployment compiled by itself, and why.",
    "bench": "Start a model in every way, and show the seconds side by side.",
    "doctor": "Check whether this machine is able.",
    "retry": "Queue again what failed or left for want of room.",
    "gc": "Remove what nobody needs and what is over the limits.",
    "completion": "Print the completion script of a shell.",
}

_INTERRUPTED = 130


class LazyCommands(click.Group):
    """A group that imports a command when it is run, and none to list them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"prewarm.cli.{cmd_name}")
        command = getattr(module, "command", None) or getattr(module, cmd_name)
        assert isinstance(command, click.Command), cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name without importing one, which would take half a second."""
        commands = [
            CompletionItem(name, help=line)
            for name, line in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command, naming the nearest one for a misspelt name."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean `{near[0]}`?" if near else "see `prewarm --help`"
            ctx.fail(f"no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExample:\n  prewarm demo",
)
@click.version_option(__version__, prog_name="prewarm", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Proven warm starts for torch.compile under max-autotune."""
    # click itself leaves colours out where the output is no terminal.
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every error is told here and nowhere else."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if not arguments and "_PREWARM_COMPLETE" not in os.environ:
            return _told_help()
        code = cli.main(arguments, prog_name="prewarm", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except PrewarmError as error:
        return _told(arguments, str(error), error.code, error.exit_code)
    except click.UsageError as error:
        return _told(arguments, _usage(error), "usage", error.exit_code)
    except click.ClickException as error:
        return _told(arguments, error.format_message(), "error", error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _told(arguments, "interrupted", "interrupted", _INTERRUPTED)
    except BrokenPipeError:
        # Whoever reads us has seen enough. Python flushes stdout once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if os.environ.get("PREWARM_TRACEBACK"):
            raise
        text = " ".join(f"{type(error).__name__}: {error}".split())
        hint = "run again with PREWARM_TRACEBACK=1 to see where, and report it"
        return _told(arguments, f"internal error: {text} ({hint})", "internal", 1)


def _told_help() -> int:
    context = cli.make_context("prewarm", [], resilient_parsing=True)
    click.echo(cli.get_help(context), err=True)
    return click.UsageError.exit_code


def _told(arguments: list[str], message: str, code: str, exit_code: int) -> int:
    # What follows `--` is another program's.
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--json" in own:
        click.echo(json.dumps({"error": {"code": code, "message": message}}))
    else:
        click.echo(f"prewarm: error: {message}", err=True)
    return exit_code


def _usage(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx is not None else "prewarm"
    return f"{error.format_message().rstrip('.')}; see `{path} --help`"


if __name__ == "__main__":
    raise SystemExit(main())
