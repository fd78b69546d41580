"""The options that several commands share, and what they turn into.

Owns their names and help texts. A command gets the flags as given (``flags``) and loads the
settings itself where it must answer for a broken configuration file too, as the hook does.
"""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from prewarm.config import Settings, load_settings
from prewarm.deploy.address import Address, address_of
from prewarm.errors import ConfigError

_Command = TypeVar("_Command", bound=Callable[..., Any])

_PATH = click.Path(path_type=Path)

_FLAGS: dict[str, str] = {
    "registry": "The directory tree of models. [PREWARM_REGISTRY]",
    "cache_dir": "Where bundles and manifests are published. [PREWARM_CACHE_DIR]",
    "state_dir": "The builder's own directory, on a local disk. [PREWARM_STATE_DIR]",
    "config": "Configuration file. [PREWARM_CONFIG]",
}


def settings_flags(*names: str) -> Callable[[_Command], Callable[..., Any]]:
    """Give a command the named flags (all without a name) as one mapping ``flags``."""
    wanted = names or tuple(_FLAGS)

    def decorate(command: _Command) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_flags(*args: object, **options: object) -> object:
            flags = {name: options.pop(name) for name in wanted}
            return command(*args, flags=flags, **options)

        decorated: Callable[..., Any] = with_flags
        for name in reversed(wanted):
            option = click.option(
                "--" + name.replace("_", "-"), name, type=_PATH, help=_FLAGS[name]
            )
            decorated = option(decorated)
        return decorated

    return decorate


def settings_options(command: _Command) -> Callable[..., Any]:
    """Give a command the shared options as ``settings``, loaded."""

    @functools.wraps(command)
    def with_settings(*args: object, flags: dict[str, object], **options: object) -> object:
        return command(*args, settings=load_settings(flags, os.environ), **options)

    return settings_flags()(with_settings)


def argv_of(interpreter: str) -> tuple[str, ...]:
    """Return the argument list of ``--interpreter``, which is given as a command line."""
    try:
        return tuple(shlex.split(interpreter))
    except ValueError as error:
        raise click.BadParameter(f"{interpreter!r}: {error}", param_hint="--interpreter") from error


def settings_to_read(
    manifest: str | None, flags: dict[str, Any]
) -> tuple[Address, Settings | None]:
    """Return where a deployment reads manifests, and the settings as far as there are any.

    Raises:
        ConfigError: the settings are wrong, or ``manifest`` names nothing that can be read.
    """
    if manifest is None:
        settings = load_settings(flags, os.environ)
        named = settings.manifest
        return (settings.cache_dir if named is None else address_of(named)), settings
    address = address_of(manifest)
    try:
        return address, load_settings(flags, os.environ)
    except ConfigError:
        # They are not needed where the place is named.
        return address, None


manifest_option = click.option(
    "--manifest",
    metavar="WHERE",
    help="A directory, unix:SOCKET or URL of a builder. Default: --cache-dir. [PREWARM_MANIFEST]",
)

trust_option = click.option(
    "--trust",
    multiple=True,
    metavar="KEY",
    help="A builder's public key, or a file with some; may be repeated. [PREWARM_TRUST]",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON with stable fields.")


def example(*lines: str) -> str:
    """Return the epilog of a command's help: an example, line by line."""
    # \b keeps click from wrapping the lines into a paragraph.
    return "\b\nExample:\n" + "\n".join("  " + line for line in lines)
