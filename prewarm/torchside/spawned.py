"""Which processes a start began, seen by Python's audit hooks: compilers above all.

``subprocess.Popen``, ``os.posix_spawn``, ``os.exec`` and ``os.system`` raise audit events (PEP 578)
before the process exists. A compiler that is only asked for its version, or that only preprocesses,
compiles nothing: on a perfect CPU hit torch 2.13 still runs ``g++ --version`` twice and ``g++ -v``
once.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from typing import Any

#: Programs that turn source into machine code, by base name. ``cicc``/``nvlink`` belong to nvcc.
_COMPILER = re.compile(
    r"^((.*-)?(gcc|g\+\+|cc|c\+\+|clang|clang\+\+|icpx|icx)(-[0-9.]+)?|cc1|cc1plus|as|ld(\.\w+)?|collect2"
    r"|nvcc|ptxas|ptxas-blackwell|fatbinary|cicc|nvlink|cl\.exe|hipcc)$"
)

#: Flags with which a compiler only tells about itself or only preprocesses.
_QUERIES = frozenset(
    ["--version", "-version", "-V", "-v", "-E", "-M", "-MM", "-dumpversion", "-dumpmachine",
     "-dumpfullversion", "--help", "-dM", "-###"]
)  # fmt: skip
_QUERY_PREFIXES = ("-print-", "--print-")


def program_of(argv: list[str]) -> tuple[str, list[str]]:
    """Return the program's base name and its arguments, ``env VAR=x g++ …`` seen through."""
    words = [str(word) for word in argv]
    while words:
        name = os.path.basename(words[0])
        if name in ("env", "nice", "ccache", "sccache", "timeout") or "=" in words[0]:
            words = words[1:]
            continue
        return name, words[1:]
    return "", []


def compiler_start(argv: list[str]) -> str | None:
    """Return the compiler's base name if this argument list compiles something, else ``None``."""
    name, rest = program_of(argv)
    if not _COMPILER.match(name):
        return None
    queries = [word for word in rest if word in _QUERIES or word.startswith(_QUERY_PREFIXES)]
    sources = [word for word in rest if not word.startswith("-")]
    if "-E" in queries or "-M" in queries or "-MM" in queries:
        return None
    if queries and not sources:
        return None
    return name


def argv_of_audit(event: str, args: tuple[Any, ...]) -> list[str] | None:
    """Return the argument list that an audit event announces, or ``None`` for other events."""
    if event == "subprocess.Popen" or event in ("os.posix_spawn", "os.exec"):
        argv = args[1]
    elif event == "os.system":
        argv = args[0]
    else:
        return None
    if isinstance(argv, bytes):
        argv = argv.decode("utf-8", "replace")
    if isinstance(argv, str):
        argv = argv.split()
    try:
        words = [os.fsdecode(word) for word in argv]
    except TypeError:
        return None
    if (
        len(words) >= 3
        and os.path.basename(words[0]) in ("sh", "bash", "dash")
        and words[1] == "-c"
    ):
        words = words[2].split()
    return words
