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
    from collections.abc import Mapping, MutableMapping
    from typing import Any

FILE_NAME = "env.json"
FORMAT = 1

#: 1,000 entries with their proofs are some 10 MB; what is larger is not the hook's.
LIMIT_BYTES = 64 << 20


class Deployment:
    """The variables of a private directory, and what its entries need of torch.

    - ``caches`` and ``variables``: what is set where it is not set.
    - ``graphs``: how many the declared calls make, by the proofs.
    - ``environments``: the facts that the bundles were built with, by id.
    - ``entries``: what tells an entry to its builder: model, environment, bundle.
    - ``reports``: to which builder a start is told (``to``), with the token in ``token_file``.
    """

    def __init__(
        self,
        variables: dict[str, str],
        recompile_limit: int | None,
        *,
        caches: dict[str, str] | None = None,
        graphs: int = 0,
        environments: dict[str, dict[str, str | None]] | None = None,
        entries: list[dict[str, Any]] | None = None,
        reports: Mapping[str, Any] | None = None,
    ) -> None:
        self.variables = variables
        self.recompile_limit = recompile_limit
        self.caches = caches or {}
        self.graphs = graphs
        self.environments = environments or {}
        self.entries = entries or []
        self.reports = reports or {}

    @property
    def has_device(self) -> bool:
        """Whether an entry is for a GPU."""
        return any(facts.get("device") != "cpu" for facts in self.environments.values())

    def set_variables(self, environ: MutableMapping[str, str], *, caches: bool = True) -> None:
        """Set what is not set: a pod that passes only ``PREWARM_DIR`` gets the rest from here."""
        for name, value in {**(self.caches if caches else {}), **self.variables}.items():
            environ.setdefault(name, value)


def read_deployment(directory: str) -> Deployment | None:
    """Return what stands in a private directory's ``env.json``, or None where nothing usable."""
    path = os.path.join(directory, FILE_NAME)
    try:
        # Opening a pipe would wait for whoever writes it.
        if os.path.exists(path) and not os.path.isfile(path):
            raise ValueError("it is no file")
        with open(path, encoding="utf-8") as file:
            text = file.read(LIMIT_BYTES + 1)
        if len(text) > LIMIT_BYTES:
            raise ValueError("it is larger than %d bytes" % LIMIT_BYTES)
        found = json.loads(text)
        if found["format"] != FORMAT:
            raise ValueError("format %r, expected %d" % (found["format"], FORMAT))
        return _deployment(directory, found)
    except (
        OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError,
    ) as error:  # fmt: skip
        sys.stderr.write("prewarm: %s cannot be used: %s\n" % (path, error))
        return None


def _deployment(directory: str, found: dict[str, Any]) -> Deployment:
    entries = found["entries"]
    limits = [entry["compile"].get("recompile_limit") for entry in entries]
    reports = found.get("reports") or {}
    return Deployment(
        {str(name): str(value) for name, value in found["variables"].items()},
        max([int(limit) for limit in limits if limit], default=None),
        caches={name: os.path.join(directory, place) for name, place in found["caches"].items()},
        graphs=sum(_graphs(entry) for entry in entries),
        environments={str(name): dict(facts) for name, facts in _table(found, "environments")},
        entries=[
            {
                "model": entry["model"],
                "environment": entry["environment"],
                "bundle": entry["bundle"]["sha256"],
            }
            for entry in entries
            if "model" in entry
        ],
        reports=dict(reports),
    )


def _table(found: dict[str, Any], name: str) -> list[tuple[str, Any]]:
    return list((found.get(name) or {}).items())


def _graphs(entry: dict[str, Any]) -> int:
    calls = [call for one in entry.get("shape_sets", ()) for call in one.get("calls", ())]
    return sum(int(1 if call.get("graphs") is None else call["graphs"]) for call in calls)
