"""The options of the pre-start hook, and the hook run by them: ``hook`` and ``exec`` share both.

Owns their names, help texts and the one value that they become. What is printed is
``hook_telling.py``'s. Imports nothing heavy.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import click

from prewarm.cli.options import argv_of, settings_flags, settings_to_read
from prewarm.config import user_cache_dir
from prewarm.deploy.hook import run_hook
from prewarm.deploy.outcome import OnMiss, Outcome, Wanted, missed

_Command = TypeVar("_Command", bound=Callable[..., Any])

_PATH = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True)
class HookOptions:
    """The options as they were given."""

    into: Path | None
    manifest: str | None
    on_miss: OnMiss
    interpreter: str
    trust: tuple[str, ...]
    facts: tuple[str, ...]
    flags: dict[str, object]

    def directory(self, models: tuple[str, ...]) -> Path:
        """Return the private directory for these models."""
        return (self.into or _default_into(models)).absolute()


_OPTIONS = (
    click.option("--into", type=_PATH, help="The private directory. Default: in the user's cache."),
    click.option("--manifest", help="The cache directory to read. Default: --cache-dir."),
    click.option(
        "--on-miss",
        type=click.Choice(["cold", "eager", "fail"]),
        default="cold",
        help="Without a warm bundle: start cold (default), without compiling, "
        "or fail (exit 3, 4, 5).",
    ),
    click.option("--interpreter", default="", help="The server's Python, as a command line."),
    click.option(
        "--trust",
        multiple=True,
        metavar="KEY",
        help="A builder's public key, or a file with some; may be repeated. [PREWARM_TRUST]",
    ),
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
        )
        return run_hook(wanted, os.environ)
    except Exception as error:
        if asked.on_miss == "fail" or os.environ.get("PREWARM_TRACEBACK"):
            raise
        return missed(error, asked.on_miss)


def _fact(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"{given!r}: expected FACT=VALUE", param_hint="--for")
    return name, value


def _default_into(models: tuple[str, ...]) -> Path:
    names = "\n".join(sorted(models))
    digest = hashlib.sha256(names.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return user_cache_dir(os.environ) / "deployments" / digest
