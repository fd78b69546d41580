"""The command that a deployment starts: its program, the Python that runs it, and its flags.

Only looks: at the words of the command and at the first line of a script. Which Python it is
decides which environment is compared; flags by which it passes over ``PYTHONPATH`` keep the shim
out.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prewarm.errors import CommandNotFound, CommandNotStarted

_PYTHON = re.compile(r"(python|pypy)[0-9.]*t?")

#: Flags with which a Python takes no ``sitecustomize`` from ``PYTHONPATH``.
ISOLATING = {
    "I": "is isolated",
    "E": "does not look at PYTHONPATH",
    "S": "imports no sitecustomize",
}

#: Flags that take the next word, or end the flags: what follows belongs to the program.
_WITH_VALUE, _LAST = "WX", "cm"

#: No longer line is a ``#!`` line to Linux.
_SHEBANG_BYTES = 256


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """A command that can be started; ``python`` is None where it cannot be told which runs it."""

    argv: tuple[str, ...]
    program: Path
    python: Path | None
    flags: tuple[str, ...]

    @property
    def isolating(self) -> str | None:
        """The flag that keeps the shim out, as it is written, if there is one."""
        found = isolating_flag(self.flags)
        return None if found is None else f"-{found}"


def find_command(argv: Sequence[str], environ: Mapping[str, str]) -> ServerCommand:
    """Find the program that ``argv`` names as a shell does, and the Python that will run it.

    Raises:
        CommandNotFound: there is none.
        CommandNotStarted: it is there and cannot be run.
    """
    program = _program(argv[0], environ)
    words = list(argv)
    if _PYTHON.fullmatch(program.name):
        return ServerCommand(tuple(argv), program, program, tuple(words[1:]))
    python, flags = _of_script(program, environ)
    return ServerCommand(tuple(argv), program, python, flags)


def isolating_flag(words: Sequence[str]) -> str | None:
    """Return the letter of the first of a Python's flags that keeps the shim out."""
    passed = False
    for word in words:
        if passed:
            passed = False
            continue
        if not word.startswith("-") or word in ("-", "--"):
            return None
        if word.startswith("--"):
            continue
        for number, letter in enumerate(word[1:], start=2):
            if letter in ISOLATING:
                return letter
            if letter in _LAST:
                return None
            if letter in _WITH_VALUE:
                passed = number == len(word)
                break
    return None


def _program(name: str, environ: Mapping[str, str]) -> Path:
    found = shutil.which(name, path=environ.get("PATH", os.defpath))
    if found is not None:
        return Path(found)
    is_path = os.sep in name
    if is_path and os.path.lexists(name):
        what = "is a directory" if Path(name).is_dir() else "may not be executed by this user"
        raise CommandNotStarted(f"{name} {what}; name the program to start after `--`")
    where = "there is no such file" if is_path else "it is not on PATH"
    raise CommandNotFound(f"{name}: {where}; name the program to start after `--`")


def _of_script(program: Path, environ: Mapping[str, str]) -> tuple[Path | None, tuple[str, ...]]:
    """Return the Python of a script's ``#!`` line with its flags; also behind ``/usr/bin/env``."""
    try:
        with program.open("rb") as file:
            line = file.read(_SHEBANG_BYTES).partition(b"\n")[0]
    except OSError:
        return None, ()
    if not line.startswith(b"#!"):
        return None, ()
    words = os.fsdecode(line[2:]).split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if word != "-S"]
        found = shutil.which(words[0], path=environ.get("PATH", os.defpath)) if words else None
        words = [found, *words[1:]] if found is not None else []
    if not words or not _PYTHON.fullmatch(Path(words[0]).name):
        return None, ()
    return Path(words[0]), tuple(words[1:])
