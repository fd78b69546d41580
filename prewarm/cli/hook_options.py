"""The options of the pre-start hook, and the hook run by them: ``hook`` and ``exec`` share both.

Owns their names, help texts and the one value that they become. What is printed is
``hook_telling.py``'s. Imports nothing heavy.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import click

from prewarm.cli.hook_telling import progress
from prewarm.cli.options import (
    argv_of,
    manifest_option,
    settings_flags,
    settings_to_read,
    trust_option,
)
from prewarm.cli.time_limit import time_limit
from prewarm.deploy.hook import run_hook
from prewarm.deploy.hook_directory import default_into
from prewarm.deploy.outcome import TIMEOUT_S, OnMiss, Outcome, Wanted, missed
from prewarm.deploy.reports_to import reports_to

_Command = TypeVar("_Command", bound=Callable[..., Any])

_PATH = click.Path(path_type=Path)
#: A day is a slip of the finger.
_SECONDS = click.FloatRange(min=0, max=86_400)


#: What waits for the builder ends by itself; this much later whatever else is ended, such as a disk
#: that does not answer.
_LATE_S = 3.0


@dataclass(frozen=True, slots=True)
class HookOptions:
    """The options as they were given."""

    into: Path | None
    manifest: str | None
    on_miss: OnMiss
    interpreter: str
    trust: tuple[str, ...]
    facts: tuple[str, ...]
    wait_s: float
    timeout_s: float
    flags: dict[str, object]

    def directory(self, models: tuple[str, ...]) -> Path:
        """Return the private directory for these models."""
        return (self.into or default_into(models, os.environ)).absolute()


_OPTIONS = (
    click.option("--into", type=_PATH, help="The private directory. Default: in the user's cache."),
    manifest_option,
    click.option(
        "--wait",
        "wait_s",
        type=_SECONDS,
        default=0.0,
        metavar="S",
        help="Ask the builder to take the models first, and wait so many seconds for them.",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        type=_SECONDS,
        default=TIMEOUT_S,
        show_default=True,
        metavar="S",
        help="End after so many seconds, --wait not counted, whatever the builder does.",
    ),
    click.option(
        "--on-miss",
        type=click.Choice(["cold", "eager", "fail"]),
        default="cold",
        help="Without a warm bundle: start cold (default), without compiling, "
        "or fail (exit 3, 4, 5).",
    ),
    click.option("--interpreter", default="", help="The server's Python, as a command line."),
    trust_option,
    click.option(
        "--for",
        "facts",
        multiple=True,
        metavar="FACT=VALUE",
        help="A fact of the server's environment, where it cannot be seen here; may be repeated.",
    ),
)


def hook_options(command: _Command) -> Callable[..., Any]:
    """Give a command the hook's options as one value ``asked``."""

    @functools.wraps(command)
    def with_options(*args: object, **options: object) -> object:
        given: dict[str, Any] = {one.name: options.pop(one.name) for one in fields(HookOptions)}
        return command(*args, asked=HookOptions(**given), **options)

    decorated: Callable[..., Any] = settings_flags()(with_options)
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def run_asked(models: tuple[str, ...], asked: HookOptions) -> Outcome:
    """Run the hook as it was asked for; without ``--on-miss fail`` nothing is raised.

    Raises:
        PrewarmError: with ``--on-miss fail``, the first thing against a warm start.
    """
    argv = argv_of(asked.interpreter)
    facts = tuple(_fact(given) for given in asked.facts)
    try:
        address, settings = settings_to_read(asked.manifest, {**asked.flags, "trust": asked.trust})
        wanted = Wanted(
            models,
            asked.directory(models),
            address,
            argv,
            asked.on_miss,
            registry=settings.registry if settings else None,
            trust=settings.trust if settings else asked.trust,
            token_file=settings.token_file if settings else None,
            facts=facts,
            wait_s=asked.wait_s,
            timeout_s=asked.timeout_s,
            reports=reports_to(address, settings),
        )
        with time_limit(asked.timeout_s + asked.wait_s + _LATE_S), progress() as tell:
            return run_hook(wanted, os.environ, tell=tell)
    except Exception as error:
        if asked.on_miss == "fail" or os.environ.get("PREWARM_TRACEBACK"):
            raise
        return missed(error, asked.on_miss)


def _fact(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"{given!r}: expected FACT=VALUE", param_hint="--for")
    return name, value
