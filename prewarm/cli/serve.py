"""``prewarm serve``: the daemon, in the foreground of whoever starts it.

Owns the flags and the log's form; the work is ``daemon.py``'s.
"""

from __future__ import annotations

import os
import sys

import click

from prewarm.cli.options import example, settings_options
from prewarm.config import Settings
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
@settings_options
def command(settings: Settings, form: Form | None) -> int:
    """Watch the registry, build, prove and publish what is new, until told to stop.

    SIGTERM ends it within ten seconds; what was under work is queued again. SIGHUP looks through
    the registry anew.
    """
    log = Log(form=choose_form(os.environ, sys.stderr, form))
    return Daemon(settings, log, Notifier(os.environ)).run()
