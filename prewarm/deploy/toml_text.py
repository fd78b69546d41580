"""Plain values as TOML writes them, for lines that a person adds to a declaration.

Pure. Owns quoting; a table becomes an inline table, and what is None is left out of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def toml_value(value: Any) -> str:
    """Return a value (JSON's kinds, less null) as TOML."""
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        pairs = ", ".join(
            toml_pair(name, below) for name, below in value.items() if below is not None
        )
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(below) for below in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def toml_pair(name: str, value: Any) -> str:
    """Return ``name = value``."""
    return f"{toml_key(name)} = {toml_value(value)}"


def toml_key(name: str) -> str:
    """Return a key, quoted where it must be."""
    return name if _BARE_KEY.fullmatch(name) else _string(name)


def _string(text: str) -> str:
    # JSON's escapes are TOML's; only DEL stands bare in the one and not in the other.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
