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
from prewarm.plain_text import is_plain
from prewarm.store.limited_file import read_limited_file

FORMAT = 1
_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")

#: As large as the shim reads it.
_LIMIT_BYTES = 64 << 20


def read_filled(directory: Path) -> tuple[dict[str, Any], float]:
    """Return a private directory's ``env.json`` and when it was written.

    Raises:
        ConfigError: no hook has filled it, or it cannot be read.
    """
    path = directory / ENV_JSON
    try:
        written_s = path.stat().st_mtime
        env_json = json.loads(read_limited_file(path, _LIMIT_BYTES))
        _check(env_json)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{directory}: no hook has filled this directory; name the --into of `prewarm hook`",
            code="not_filled",
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"{path}: cannot be used ({why}); run `prewarm hook` with this --into again",
            code="not_filled",
        ) from error
    return env_json, written_s


def _check(env_json: Any) -> None:
    """Pass if this is of the form that the hook writes, as far as a reader walks through it."""
    if not isinstance(env_json, dict) or env_json.get("format") != FORMAT:
        found = env_json.get("format") if isinstance(env_json, dict) else env_json
        raise ValueError(f"has format {found!r:.60}, expected {FORMAT}")
    caches, entries = env_json.get("caches"), env_json.get("entries")
    environments = env_json.get("environments")
    if not isinstance(caches, dict) or not all(map(_is_below, map(caches.get, _CACHES))):
        raise ValueError("names no caches of its own")
    if not isinstance(entries, list) or not all(map(_is_entry, entries)):
        raise ValueError("holds no list of entries")
    if not isinstance(environments, dict) or not all(
        isinstance(facts, dict) for facts in environments.values()
    ):
        raise ValueError("holds no environments")


def _is_below(place: Any) -> bool:
    return (
        isinstance(place, str)
        and is_plain(place)
        and not {"", ".", ".."}.intersection(place.split("/"))
    )


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and is_plain(str(entry.get("model")))


def entry_of(env_json: dict[str, Any], model: str) -> dict[str, Any] | None:
    """Return the entry of a model, by its name or an alias; None where it has none."""
    wanted = model.strip("/")
    for entry in env_json["entries"]:
        if wanted == entry.get("model") or wanted in entry.get("aliases", ()):
            found: dict[str, Any] = entry
            return found
    return None
