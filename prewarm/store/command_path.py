"""Whether torch can compile below a directory: it splits its compiler's command at spaces. Pure."""

from __future__ import annotations

import re
from pathlib import Path

from prewarm.errors import ConfigError

#: What ``shlex.split`` takes for the end of a word or for a quotation. torch joins the command for
#: each C++ kernel from unquoted paths and splits it again (torch/_inductor/cpp_builder.py, 2.9 to
#: 2.14), so in such a directory every compile ends with an error.
_PARTS_WORDS = re.compile(r"""[\s'"\\]""")


def require_command_path(path: Path, *, flag: str) -> None:
    """Pass if torch can compile into files below a directory.

    Raises:
        ConfigError: its path holds a space, a quote or a backslash.
    """
    found = _PARTS_WORDS.search(str(path.absolute()))
    if found is not None:
        raise ConfigError(
            f"{path}: holds {found[0]!r}, at which torch splits its compiler's command, so that "
            f"every C++ compile below it would fail; choose another directory with {flag}"
        )
