"""The options that several commands share, and what they turn into.

Owns their names and help texts. A command gets the flags as given (``flags``) and loads the
settings itself where it must answer for a broken configuration file too, as the hook does.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from prewarm.config import load_settings

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


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON with stable fields.")


def example(*lines: str) -> str:
    """Return the epilog of a command's help: an example, line by line."""
    # \b keeps click from wrapping the lines into a paragraph.
    return "\b\nExample:\n" + "\n".join("  " + line for line in lines)
