"""``prewarm serve``: the daemon, in the foreground of whoever starts it.

Owns the flags and the log's form; the work is ``daemon.py``'s.
"""

from __future__ import annotations

import os
import sys
from functools import partial

import click

from prewarm.cli.options import example, settings_flags
from prewarm.config import load_settings
from prewarm.daemon import Daemon
from prewarm.log import Form, Log, choose_form
from prewarm.notify import Notifier


@click.command(
    "serve", epilog=example("prewarm serve --registry /models", "systemctl start prewarm")
)
@click.option(
    "--log-format",
    "form",
    type=click.Choice(["human", "json"]),
    help="Default: JSON under systemd, else for people.",
)
@settings_flags()
def command(flags: dict[str, object], form: Form | None) -> int:
    """Watch the registry, build, prove and publish what is new, until told to stop.

    SIGTERM ends it within ten seconds; what was under work is queued again. SIGHUP reads the
    configuration again.
    """
    log = Log(form=choose_form(os.environ, sys.stderr, form))
    read = partial(load_settings, flags, os.environ)
    return Daemon(read(), log, Notifier(os.environ), reread=read).run()
