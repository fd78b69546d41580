"""The units say what the README says, and every command in them is one of prewarm's."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from prewarm.cli.main import COMMANDS, cli

UNITS = Path(__file__).parents[2] / "systemd"


def _commands() -> list[str]:
    found = []
    for file in sorted(UNITS.iterdir()):
        found += re.findall(r"^Exec\w+=/opt/prewarm/bin/prewarm (.+)$", file.read_text(), re.M)
    return found


def test_every_command_of_the_units_parses() -> None:
    assert len(_commands()) == 3
    root = cli.make_context("prewarm", [], resilient_parsing=True)
    for line in _commands():
        name, *arguments = shlex.split(line)
        assert name in COMMANDS
        command = cli.get_command(root, name)
        assert isinstance(command, click.Command)
        command.make_context(name, arguments, parent=root)


def test_the_service_is_sandboxed_as_the_readme_states() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager",
         str(UNITS / "prewarm.service")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    match = re.search(r"exposure level for prewarm\.service: ([0-9.]+)", done.stdout)
    if match is None:
        pytest.skip("this systemd-analyze does not rate a file")
    assert float(match[1]) <= 4.0
