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

from ..readme import block_with

UNITS = Path(__file__).parents[2] / "systemd"


def _commands() -> list[str]:
    found = []
    for file in sorted(UNITS.iterdir()):
        found += re.findall(r"^Exec\w+=/opt/prewarm/bin/prewarm (.+)$", file.read_text(), re.M)
    return [line.replace(" $PREWARM_HOOK_OPTIONS", "") for line in found]


def test_every_command_of_the_units_parses() -> None:
    assert len(_commands()) == 3
    root = cli.make_context("prewarm", [], resilient_parsing=True)
    for line in _commands():
        name, *arguments = shlex.split(line)
        assert name in COMMANDS
        command = cli.get_command(root, name)
        assert isinstance(command, click.Command)
        command.make_context(name, arguments, parent=root)


@pytest.mark.parametrize("unit", ["prewarm.service", "prewarm-hook@.service"])
def test_the_units_are_sandboxed(unit: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    file = tmp_path / unit.replace("@.", "@m.")  # it rates an instance, not a template
    shutil.copy(UNITS / unit, file)
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(file)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    match = re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)
    if match is None:
        pytest.skip("this systemd-analyze does not rate a file")
    assert float(match[1]) <= 4.0


def test_the_drop_in_of_the_readme_is_the_one_in_the_folder() -> None:
    block = block_with("ExecStartPre=", "ini").splitlines()
    told = [
        line.replace("MODEL", "minilm/v1").replace("my-server", "minilm")
        for line in (UNITS / "deployment.conf").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert told == block


@pytest.mark.parametrize(("text", "of_hook"), [("Requires=", False), ("HOOK_OPTIONS", True)])
def test_the_template_says_how_to_use_it_as_the_readme_does(text: str, of_hook: bool) -> None:
    comments = re.findall(r"^#   (.+)$", (UNITS / "prewarm-hook@.service").read_text(), re.M)
    block = [line for line in block_with(text, "ini").splitlines() if line]
    start = comments.index(block[0], comments.index("[Service]") + 1 if of_hook else 0)
    assert comments[start : start + len(block)] == block
