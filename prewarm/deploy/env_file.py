r"""The text of an env file: one ``KEY="value"`` line per variable, in the dialect of its reader.

Pure. Owns quoting and the merging of the deployment's own ``PYTHONPATH``.

- ``systemd``: read alike by ``EnvironmentFile=`` and by ``sh``. In double quotes both take a
  backslash before ``"``, ``\\``, `` ` `` and ``$`` away, and keep any other backslash.
- ``sh``: exported, and merged with the ``PYTHONPATH`` of the shell that reads it.
- ``docker``: ``--env-file`` takes the rest of the line as it stands; nothing can be quoted.

``CUDA_VISIBLE_DEVICES`` is never written: it belongs to the scheduler.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from prewarm.errors import ConfigError

Dialect = Literal["systemd", "sh", "docker"]
DIALECTS: tuple[Dialect, ...] = ("systemd", "sh", "docker")

#: Variables that a manifest must not set, whoever signed it.
FOREIGN = frozenset({"CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "LD_LIBRARY_PATH", "PATH", "HOME"})

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNFIT_FOR_COMMENT = re.compile(r"[^\x20-\x5b\x5d-\x7e]")
_QUOTED_ALIKE = re.compile(r'(["\\`$])')


def env_text(variables: Mapping[str, str], dialect: Dialect, *, comment: str) -> str:
    """Return the whole text of an env file; ``comment`` becomes its first line.

    Raises:
        ConfigError: a name or value cannot stand in an env file.
    """
    # To systemd a backslash at the end of a comment makes the next line one too.
    lines = ["# " + _UNFIT_FOR_COMMENT.sub("?", comment)]
    for name, value in variables.items():
        _check(name, value)
        lines.append(_line(name, value, dialect))
    return "\n".join(lines) + "\n"


def source_command(env: Path) -> str:
    """Return what a shell runs to have the variables of a ``systemd`` env file exported."""
    return f"set -a; . {_quoted(str(env))}; set +a"


def merged_python_path(shim: Path, own: str | None) -> str:
    """Return ``PYTHONPATH`` with the shim in front of the deployment's own; a shim stands once.

    Raises:
        ConfigError: the shim's path would be read as two.
    """
    if os.pathsep in str(shim):
        raise ConfigError(
            f"{shim}: holds a {os.pathsep!r}, which parts the entries of PYTHONPATH; "
            "choose another directory with --into"
        )
    kept = [entry for entry in own.split(os.pathsep) if not _is_shim(entry)] if own else []
    return os.pathsep.join([str(shim), *kept])


def _is_shim(entry: str) -> bool:
    # The shim of an earlier start, maybe of another directory: its env file was read before.
    return bool(entry) and (Path(entry) / "prewarm_torchside").is_dir()


def _line(name: str, value: str, dialect: Dialect) -> str:
    if dialect == "docker":
        return f"{name}={value}"
    if dialect == "systemd":
        return f"{name}={_quoted(value)}"
    if name == "PYTHONPATH":
        first = value.split(os.pathsep)[0]
        return f'export {name}={_quoted(first)[:-1]}${{PYTHONPATH:+:$PYTHONPATH}}"'
    return f"export {name}={_quoted(value)}"


def _quoted(value: str) -> str:
    return '"' + _QUOTED_ALIKE.sub(r"\\\1", value) + '"'


def _check(name: str, value: str) -> None:
    if not _NAME.fullmatch(name) or name in FOREIGN:
        raise ConfigError(f"the variable {name!r} must not stand in an env file")
    if any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise ConfigError(
            f"{name}: {value!r} holds a control character, which no env file can; "
            "choose another directory with --into"
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"{name}: {value!r} is no UTF-8, which no env file can hold; "
            "choose another directory with --into"
        ) from error
