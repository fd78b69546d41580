"""What the hook left for a deployment: ``PREWARM_DIR/env.json``.

Owns reading it and the variables that it stands for. Standard library only. A file that cannot be
used is told in one line on standard error, and the server starts as if there were none.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import Any

FILE_NAME = "env.json"
FORMAT = 1

#: 1,000 entries with their proofs are some 10 MB; what is larger is not the hook's.
LIMIT_BYTES = 64 << 20


class Deployment:
    """The variables of a private directory, and what its entries need of torch."""

    def __init__(self, variables: dict[str, str], recompile_limit: int | None) -> None:
        self.variables = variables
        self.recompile_limit = recompile_limit

    def set_variables(self, environ: MutableMapping[str, str]) -> None:
        """Set what is not set: a pod that passes only ``PREWARM_DIR`` gets the rest from here."""
        for name, value in self.variables.items():
            environ.setdefault(name, value)


def read_deployment(directory: str) -> Deployment | None:
    """Return what stands in a private directory's ``env.json``, or None where nothing usable."""
    path = os.path.join(directory, FILE_NAME)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(LIMIT_BYTES + 1)
        if len(text) > LIMIT_BYTES:
            raise ValueError("it is larger than %d bytes" % LIMIT_BYTES)
        found = json.loads(text)
        if found["format"] != FORMAT:
            raise ValueError("format %r, expected %d" % (found["format"], FORMAT))
        return _deployment(directory, found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        sys.stderr.write("prewarm: %s cannot be used: %s\n" % (path, error))
        return None


def _deployment(directory: str, found: dict[str, Any]) -> Deployment:
    variables = {name: os.path.join(directory, place) for name, place in found["caches"].items()}
    variables.update({str(name): str(value) for name, value in found["variables"].items()})
    limits = [entry["compile"].get("recompile_limit") for entry in found["entries"]]
    return Deployment(variables, max([int(limit) for limit in limits if limit], default=None))
