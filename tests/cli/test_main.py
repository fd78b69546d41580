"""The command's outside: help, exit codes, errors in one line, quick starts."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from prewarm import __version__
from prewarm.cli import main as main_module
from prewarm.cli.main import COMMANDS, cli, main
from prewarm.errors import EnvironmentDiffers, ManifestUnavailable, NotWarm, PrewarmError
from prewarm.store.database import Database

Result = tuple[int, str, str]
Prewarm = Callable[..., Result]


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    @click.command()
    @click.option("--json", "as_json", is_flag=True)
    def broken(as_json: bool) -> None:
        raise error

    monkeypatch.setattr(main_module.LazyCommands, "get_command", lambda self, ctx, cmd_name: broken)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_helps_and_ends_with_an_example(prewarm: Prewarm, name: str) -> None:
    code, out, err = prewarm(name, "--help")

    assert (code, err) == (0, "")
    assert f"prewarm {name}" in out.rsplit("Example", 1)[1]
    assert prewarm(name, "-h") == (code, out, err)


def test_the_group_lists_every_command(prewarm: Prewarm) -> None:
    code, out, _ = prewarm("--help")

    assert code == 0
    assert all(name in out for name in COMMANDS)
    assert prewarm("--version") == (0, f"prewarm {__version__}\n", "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PrewarmError("it went wrong"), 1),
        (NotWarm("it went wrong"), 3),
        (EnvironmentDiffers("it went wrong"), 4),
        (ManifestUnavailable("it went wrong"), 5),
    ],
)
def test_an_expected_error_is_one_line_and_its_exit_code(
    prewarm: Prewarm, monkeypatch: pytest.MonkeyPatch, error: PrewarmError, code: int
) -> None:
    raising(monkeypatch, error)

    assert prewarm("status") == (code, "", "prewarm: error: it went wrong\n")
    told = {"error": {"code": error.code, "message": "it went wrong"}}
    assert prewarm("status", "--json") == (code, json.dumps(told) + "\n", "")


def test_an_unexpected_error_is_one_line_too(
    prewarm: Prewarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(monkeypatch, ValueError("two\nlines"))

    code, out, err = prewarm("status")

    assert (code, out) == (1, "")
    [line] = err.splitlines()
    assert "internal error: ValueError: two lines" in line
    assert "PREWARM_TRACEBACK=1" in line
    monkeypatch.setenv("PREWARM_TRACEBACK", "1")
    with pytest.raises(ValueError, match="two"):
        main(["status"])


def test_an_interrupt_ends_with_130(prewarm: Prewarm, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, KeyboardInterrupt())

    code, out, err = prewarm("status")

    # click ends the terminal's line with the ^C first.
    assert (code, out, err) == (130, "", "\nprewarm: error: interrupted\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["stauts"], "no command 'stauts'; did you mean `status`?"),
        (["xyz"], "see `prewarm --help`"),
        (["status", "--nope"], "--nope"),
        (["hook"], "Missing argument"),
        (["hook", "m", "--on-miss", "hot"], "'hot' is not one of"),
        (["hook", "m", "--format", "xml"], "'xml' is not one of"),
    ],
)
def test_wrong_usage_is_one_line_and_2(prewarm: Prewarm, arguments: list[str], told: str) -> None:
    code, out, err = prewarm(*arguments)

    assert (code, out) == (2, "")
    assert err.startswith("prewarm: error: ")
    assert err.count("\n") == 1
    assert told in err
    assert json.loads(prewarm(*arguments, "--json")[1])["error"]["code"] == "usage"


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    script = f"{sys.executable} -m prewarm.cli --help | true; exit ${{PIPESTATUS[0]}}"

    done = subprocess.run(["bash", "-c", script], capture_output=True, check=False)

    assert done.stderr == b""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_that_asks_the_command(prewarm: Prewarm, shell: str) -> None:
    code, out, _ = prewarm("completion", shell)

    assert code == 0
    assert f"_PREWARM_COMPLETE={shell}_complete" in out


def test_completion_completes_commands_and_options() -> None:
    def complete(words: str, number: int) -> str:
        environ = {"_PREWARM_COMPLETE": "bash_complete", "COMP_WORDS": words}
        code = "import sys; from prewarm.cli.main import main; sys.exit(main([]))"
        return subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | environ | {"COMP_CWORD": str(number)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert "status" in complete("prewarm st", 1)
    assert "--on-miss" in complete("prewarm hook --on", 2)


@pytest.mark.parametrize("name", ["hook", "status"])
def test_hook_and_status_import_nothing_slow(name: str) -> None:
    code = (
        "import importlib, sys; importlib.import_module('prewarm.cli.' + sys.argv[1]);"
        "print([m for m in sys.argv[2:] if m in sys.modules])"
    )
    slow = [
        "pydantic", "rich", "cryptography", "sqlite_utils", "zstandard", "tarfile", "platformdirs",
        "psutil", "torch", "importlib.metadata",
    ]  # fmt: skip

    done = subprocess.run(
        [sys.executable, "-c", code, name, *slow], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"


def test_every_command_of_the_table_is_a_click_command() -> None:
    context = click.Context(cli)
    for name in COMMANDS:
        assert cli.get_command(context, name) is not None
    assert cli.get_command(context, "nope") is None


def test_sigint_while_a_command_runs_ends_with_130() -> None:
    code = (
        "import os, signal, sys, prewarm.cli.main as m;"
        "m.LazyCommands.get_command = lambda *a: os.kill(os.getpid(), signal.SIGINT);"
        "sys.exit(m.main(['status']))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)

    assert done.returncode == 130
    assert done.stderr.strip() == b"prewarm: error: interrupted"


def test_every_class_of_errors_has_an_exit_code_of_the_contract() -> None:
    def below(kind: type[PrewarmError]) -> set[type[PrewarmError]]:
        return {kind}.union(*map(below, kind.__subclasses__()))

    kinds = {kind for kind in below(PrewarmError) if kind.__module__.startswith("prewarm.")}
    other = {kind.__name__: kind.exit_code for kind in kinds if kind.exit_code != 1}

    assert other.pop("Interrupted", 130) == 130, "build's own; there only if a test imported it"
    assert other.pop("Broken", 5) == 5, "of a connection; likewise"
    assert other == {
        "NotWarm": 3,
        "EnvironmentDiffers": 4,
        "ManifestUnavailable": 5,
        "CommandNotStarted": 126,
        "CommandNotFound": 127,
    }


def test_without_a_command_the_help_is_shown_as_wrong_usage(prewarm: Prewarm) -> None:
    code, out, err = prewarm()

    assert (code, out) == (2, "")
    assert err.startswith("Usage: prewarm [OPTIONS] COMMAND")
    assert all(name in err for name in COMMANDS)


def test_every_file_that_holds_a_command_is_in_the_table() -> None:
    held = set()
    for file in Path(main_module.__file__).parent.glob("[a-z]*.py"):
        if re.search(r"^@click\.command", file.read_text(), re.MULTILINE):
            held.add(file.stem)

    assert held == set(COMMANDS)


def test_ctrl_c_in_the_middle_of_a_command_ends_it_with_130(
    state_dir: Path, database: Database, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "log")
    database.put_entry("m", "e", at="2027-01-15T08:00:00.000Z", log=str(tmp_path / "log"))
    argv = [sys.executable, "-m", "prewarm.cli", "status", "--log", "--state-dir", str(state_dir)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    # Opening it for writing waits until the command has opened it for reading.
    with open(tmp_path / "log", "wb"):
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()

    assert process.returncode == 130
    assert err == b"\nprewarm: error: interrupted\n"


@pytest.mark.parametrize("arguments", [["--help"], ["status", "--help"], ["completion", "bash"]])
def test_a_reader_that_is_gone_before_the_first_line_is_no_error(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    argv = [sys.executable, "-m", "prewarm.cli", *arguments]

    done = subprocess.run(argv, stdout=writing, stderr=subprocess.PIPE, check=False)

    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_the_installed_script_is_this_command() -> None:
    [script] = [
        found
        for found in importlib.metadata.entry_points(group="console_scripts")
        if found.name == "prewarm"
    ]

    assert script.load() is main
