"""What a deployment starts from: its variables, ``D/env``, ``D/env.json`` and the env file.

Owns which variables a start gets and the fields of ``env.json``, which the shim reads where nothing
else reached the server. How the files are switched at once is ``current.py``'s.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from prewarm.deploy.current import point_at, remove_unused, write_changed
from prewarm.deploy.env_file import Dialect, env_text, merged_python_path
from prewarm.deploy.outcome import Started
from prewarm.deploy.private import SHIM, Prepared
from prewarm.deploy.reports_to import ReportsTo

#: Variables that name the tree; all others are the same wherever the tree lies.
PLACES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "PREWARM_DIR", "PYTHONPATH")


def start_variables(
    prepared: Prepared,
    started: Sequence[Started],
    environ: Mapping[str, str],
    warnings: list[str],
) -> dict[str, str]:
    """Return the variables to start with; conflicting ones are told in ``warnings``.

    Raises:
        ConfigError: the directory's path cannot stand in ``PYTHONPATH``.
    """
    into = prepared.tree.parent
    variables: dict[str, str] = {}
    for found in started:
        for name, value in found.published.entry.variables.items():
            if variables.setdefault(name, value) != value:
                warnings.append(
                    f"{found.model}: was proven with {name}={value}, another model with "
                    f"{variables[name]}, which is set; start them in processes of their own"
                )
    modes = {found.published.entry.compile.mode for found in started}
    if len(modes) == 1:
        # For a server that asks for it: an entry whose first mode did not fit is warm in this one.
        variables["PREWARM_MODE"] = modes.pop()
    return variables | {
        "TORCHINDUCTOR_CACHE_DIR": str(prepared.tree / "inductor"),
        "TRITON_CACHE_DIR": str(prepared.tree / "triton"),
        "PREWARM_DIR": str(into),
        "PYTHONPATH": merged_python_path(into / SHIM, environ.get("PYTHONPATH")),
    }


def point_deployment(
    prepared: Prepared,
    started: Sequence[Started],
    variables: Mapping[str, str],
    reports: ReportsTo | None = None,
) -> None:
    """Point ``D/env``, ``D/env.json`` and ``D/shim`` at a tree; remove trees that nobody uses.

    ``reports`` is the builder that its starts are told to.

    Raises:
        NotWritable: the directory cannot be written.
        NoSpace: it is full.
        ConfigError: a value cannot stand in an env file.
    """
    models = [found.model for found in started]
    env = env_text(variables, "systemd", comment=comment(variables, models))
    fixed = {name: value for name, value in variables.items() if name not in PLACES}
    env_json = {
        "format": 1,
        # Relative to the directory that holds this file, which a pod may see under another path.
        "caches": {
            "TORCHINDUCTOR_CACHE_DIR": f"{prepared.tree.name}/inductor",
            "TRITON_CACHE_DIR": f"{prepared.tree.name}/triton",
        },
        "variables": fixed,
        "entries": [found.published.entry.to_dict() for found in started],
        "environments": {
            found.published.entry.environment: found.published.environment.to_dict()
            for found in started
        },
        "reports": reports.to_dict() if reports is not None else None,
    }
    text = json.dumps(env_json, indent=1, sort_keys=True) + "\n"
    point_at(prepared.tree, env=env.encode(), env_json=text.encode())
    remove_unused(prepared.tree, now_s=time.time())


def write_env_file(
    path: Path, variables: Mapping[str, str], dialect: Dialect, models: Sequence[str]
) -> None:
    """Write the env file whole and readable by all; without variables it holds a comment.

    Raises:
        NotWritable: its directory cannot be written.
        ConfigError: a value cannot stand in an env file.
    """
    write_changed(path, env_text(variables, dialect, comment=comment(variables, models)).encode())


def comment(variables: Mapping[str, str], models: Sequence[str]) -> str:
    """Return the first line of an env file."""
    names = " ".join(models)
    if not variables:
        return f"prewarm: {names}: nothing to set, this start is cold"
    return f"prewarm: {names}"
