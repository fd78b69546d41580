"""A C++ compiler that remembers, for all processes of one run of the tests.

torch tries each vector instruction set in every new cache directory, and many tests build the same
kernels: the same compiles again and again, each some seconds of g++. ``remembering_compiler``
makes a directory with a ``g++`` in it, to stand first in ``PATH``. It starts as often as torch
starts a compiler, so whoever counts compilers counts the same; what it compiled before, from the
same bytes with the same words, it copies. It forgets with the run, whose directory it lies in.

What is no plain compile (``--version``, a preprocessor run, quoted includes) and what fails is the
real compiler's each time. ``forgetful`` is a ``PATH`` without it, for a start that must be cold.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys

NAME = "g++"
_MARK = "prewarm-remembering-compiler"
_QUOTED_INCLUDE = re.compile(rb'#\s*include\s*"')


def remembering_compiler(directory: str) -> str | None:
    """Make the compiler below ``directory`` once and return what ``PATH`` is with it in front.

    None where there is no g++ to call.
    """
    real = shutil.which(NAME, path=forgetful())
    if real is None:
        return None
    place = os.path.join(directory, _MARK)
    os.makedirs(os.path.join(place, "made"), exist_ok=True)
    words = [sys.executable, "-IS", os.path.abspath(__file__), real, os.path.join(place, "made")]
    part = os.path.join(place, f".{os.getpid()}")
    with open(part, "w", encoding="utf-8") as file:
        # Without -o it is asked who it is, which must stay quick.
        file.write(
            # The real one is called by its bare name, which is part of what it tells of itself and
            # so of torch's keys, and must not find this one in its place.
            f"#!/bin/sh\nPATH={_quoted([forgetful()])}\n"
            f'case " $* " in\n*" -o "*) exec {_quoted(words)} "$@" ;;\nesac\n'
            f'exec {NAME} "$@"\n'
        )
    os.chmod(part, 0o755)
    os.replace(part, os.path.join(place, NAME))
    return os.pathsep.join([place, forgetful()])


def forgetful() -> str:
    """Return ``PATH`` without the remembering compiler."""
    parts = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(part for part in parts if os.path.basename(part) != _MARK)


def _quoted(words: list[str]) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)


def _compile(real: str, made: str, words: list[str]) -> int:
    target = words[words.index("-o") + 1]
    key = _key(real, target, words)
    if key is None:
        os.execv(real, [NAME, *words])
    known = os.path.join(made, key)
    try:
        with open(os.path.join(known, "told"), "rb") as file:
            sys.stderr.buffer.write(file.read())
        # A copy: tests cut and change what lies in a cache directory.
        shutil.copy(os.path.join(known, "made"), target)
        return 0
    except FileNotFoundError:
        pass
    done = subprocess.run([NAME, *words], executable=real, stderr=subprocess.PIPE, check=False)
    sys.stderr.buffer.write(done.stderr)
    if done.returncode == 0 and os.path.isfile(target):
        _keep(known, target, done.stderr)
    return done.returncode


def _keep(known: str, target: str, told: bytes) -> None:
    part = f"{known}.{os.getpid()}"
    os.mkdir(part)
    shutil.copy(target, os.path.join(part, "made"))
    with open(os.path.join(part, "told"), "wb") as file:
        file.write(told)
    try:
        os.rename(part, known)
    except OSError:  # another process was first
        shutil.rmtree(part)


def _key(real: str, target: str, words: list[str]) -> str | None:
    """Return what decides the outcome of a compile, or None where that cannot be told."""
    if not {"-E", "-M", "-MM", "-"}.isdisjoint(words):
        return None
    digest = hashlib.sha256(f"{real}\n{os.stat(real).st_mtime_ns}\n".encode())
    for word in words:
        if word != target and os.path.isfile(word):
            with open(word, "rb") as file:
                content = file.read()
            if _QUOTED_INCLUDE.search(content):
                return None
            digest.update(hashlib.sha256(content).digest() + os.path.splitext(word)[1].encode())
        else:
            digest.update(b"-o" if word == target else os.fsencode(word))
        digest.update(b"\0")
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(_compile(sys.argv[1], sys.argv[2], sys.argv[3:]))
