"""``prewarm doctor``: whether this machine is able, each finding with its next step.

Owns the order and the printing. The checks stand in ``machine_checks.py``, ``place_checks.py``,
``key_check.py``, ``watch_check.py``, ``work_check.py`` and ``published_check.py``; each returns
findings and raises nothing.
"""

from __future__ import annotations

import json
import os

import click

from prewarm.cli.finding import Finding
from prewarm.cli.key_check import check_key
from prewarm.cli.machine_checks import check_machine
from prewarm.cli.options import argv_of, example, json_option, settings_flags
from prewarm.cli.place_checks import check_places
from prewarm.cli.published_check import check_published
from prewarm.cli.watch_check import check_watching
from prewarm.cli.work_check import check_work
from prewarm.config import load_settings

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command(
    "doctor", epilog=example("prewarm doctor", "prewarm doctor --interpreter python3.12")
)
@click.option(
    "--interpreter",
    default="",
    help="The deployment's Python, as a command line. Default: prewarm's own.",
)
@settings_flags()
@json_option
def command(interpreter: str, flags: dict[str, object], as_json: bool) -> int:
    """Check whether this machine can build, prove and start warm.

    Ends with 1 if a check fails; a warning is no failure.
    """
    settings = load_settings(flags, os.environ)
    python = argv_of(interpreter)
    findings = [
        *check_machine(python, os.environ),
        *check_places(settings, os.environ, python),
        check_key(settings),
        *check_watching(settings),
        *check_work(settings, os.environ),
        *check_published(settings, python, os.environ),
    ]
    failed = any(finding.level == "fail" for finding in findings)
    if as_json:
        checks = [finding.to_dict() for finding in findings]
        click.echo(json.dumps({"ok": not failed, "checks": checks}, indent=2))
    else:
        for finding in findings:
            click.echo(_line(finding))
    return 1 if failed else 0


def _line(finding: Finding) -> str:
    level = click.style(f"{finding.level:<5}", fg=_COLOURS[finding.level], bold=True)
    line = f"{level}{finding.check:<14}{finding.found}"
    return line if finding.next_step is None else f"{line}\n{'':<19}-> {finding.next_step}"
