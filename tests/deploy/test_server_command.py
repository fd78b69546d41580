"""Which program a command names, which Python runs it, and which of its flags keep the shim out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from prewarm.deploy.server_command import find_command, isolating_flag
from prewarm.errors import CommandNotFound, CommandNotStarted


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_name_is_looked_up_on_path(tmp_path: Path) -> None:
    made = program(tmp_path / "serve")
    found = find_command(["serve", "--port", "1"], {"PATH": f"/nowhere:{tmp_path}"})
    assert (found.program, found.argv) == (made, ("serve", "--port", "1"))
    assert (found.python, found.isolating) == (None, None)


@pytest.mark.parametrize("name", ["python", "python3", "python3.12", "pypy3", "python3.13t"])
def test_a_python_is_its_own_interpreter(tmp_path: Path, name: str) -> None:
    made = program(tmp_path / name)
    assert find_command([str(made), "-I", "serve.py"], {}).python == made
    assert find_command([str(made), "-I", "serve.py"], {}).isolating == "-I"
    assert find_command([str(made), "serve.py", "-I"], {}).isolating is None


@pytest.mark.parametrize("name", ["pythonic", "python-config", "mypython"])
def test_what_only_sounds_like_a_python_is_none(tmp_path: Path, name: str) -> None:
    assert find_command([str(program(tmp_path / name))], {}).python is None


def test_a_script_tells_its_python_with_flags(tmp_path: Path) -> None:
    script = program(tmp_path / "uvicorn", "#!/srv/app/bin/python3 -sE\nprint(1)\n")
    found = find_command([str(script), "app:app"], {})
    assert (found.program, found.python) == (script, Path("/srv/app/bin/python3"))
    assert found.isolating == "-E"


def test_a_script_behind_env_is_run_by_the_python_on_path(tmp_path: Path) -> None:
    python = program(tmp_path / "python3")
    script = program(tmp_path / "serve", "#!/usr/bin/env python3\n")
    assert find_command([str(script)], {"PATH": str(tmp_path)}).python == python
    assert find_command([str(script)], {"PATH": "/nowhere"}).python is None
    split = program(tmp_path / "split", "#!/usr/bin/env -S python3 -I\n")
    found = find_command([str(split)], {"PATH": str(tmp_path)})
    assert (found.python, found.isolating) == (python, "-I")


@pytest.mark.parametrize("text", ["", "\x7fELF", "#!", "#!/bin/sh\n", "#!/usr/bin/env\n"])
def test_of_other_programs_no_python_is_known(tmp_path: Path, text: str) -> None:
    assert find_command([str(program(tmp_path / "serve", text))], {}).python is None


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], None),
        (["serve.py", "-I"], None),
        (["-I"], "I"),
        (["-uE", "serve.py"], "E"),
        (["-BIm", "serve"], "I"),
        (["-m", "-I"], None),
        (["-mS"], None),
        (["-c", "code", "-S"], None),
        (["-W", "-E", "serve.py"], None),
        (["-WE", "-S"], "S"),
        (["-X", "importtime", "-S"], "S"),
        (["-Xdev", "serve.py"], None),
        (["--check-hash-based-pycs", "never"], None),
        (["-"], None),
        (["-u", "--", "-I"], None),
    ],
)
def test_flags_are_read_as_python_reads_them(words: list[str], found: str | None) -> None:
    assert isolating_flag(words) == found


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(CommandNotFound, match="no-such-command: it is not on PATH") as told:
        find_command(["no-such-command"], {"PATH": "/nowhere"})
    assert told.value.exit_code == 127
    with pytest.raises(CommandNotFound, match="there is no such file"):
        find_command(["./no-such-command"], {})


def test_a_command_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text("print(1)")
    with pytest.raises(CommandNotStarted, match="may not be executed") as told:
        find_command([str(tmp_path / "serve.py")], {})
    assert told.value.exit_code == 126
    with pytest.raises(CommandNotStarted, match="is a directory"):
        find_command([str(tmp_path)], {})


def test_our_own_python_is_one() -> None:
    assert find_command([sys.executable], {}).python == Path(sys.executable)
