"""What stands in a private directory that a hook filled, as ``D/env.json`` says.

Owns reading that file where a person or a server's own code asks. The shim reads it by itself
(``torchside/deployment.py``). Standard library only, so that a server needs nothing else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prewarm.deploy.current import ENV_JSON
from prewarm.errors import ConfigError

FORMAT = 1

#: As large as the shim reads it.
_LIMIT_BYTES = 64 << 20


def read_filled(directory: Path) -> tuple[dict[str, Any], float]:
    """Return a private directory's ``env.json`` and when it was written.

    Raises:
        ConfigError: no hook has filled it, or it cannot be read.
    """
    path = directory / ENV_JSON
    try:
        found = path.stat()
        if found.st_size > _LIMIT_BYTES:
            raise ValueError(f"is larger than {_LIMIT_BYTES:,} bytes")
        env_json: dict[str, Any] = json.loads(path.read_bytes())
        if env_json["format"] != FORMAT:
            raise ValueError(f"has format {env_json['format']!r}, expected {FORMAT}")
        for key in ("caches", "entries", "environments"):
            env_json[key]
    except FileNotFoundError as error:
        raise ConfigError(
            f"{directory}: no hook has filled this directory; name the --into of `prewarm hook`",
            code="not_filled",
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"{path}: cannot be used ({why}); run `prewarm hook` with this --into again",
            code="not_filled",
        ) from error
    return env_json, found.st_mtime


def entry_of(env_json: dict[str, Any], model: str) -> dict[str, Any] | None:
    """Return the entry of a model, by its name or an alias; None where it has none."""
    wanted = model.strip("/")
    for entry in env_json["entries"]:
        if wanted == entry.get("model") or wanted in entry.get("aliases", ()):
            found: dict[str, Any] = entry
            return found
    return None
