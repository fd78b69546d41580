"""The environment that is present.

Gathered without torch, under the interpreter that will run the model.

Runs ``torchside/facts.py`` by its path, in this process for our own interpreter and as a child for
another, so that nothing of ``torchside`` is imported here.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prewarm.environment import Environment
from prewarm.errors import ConfigError

#: The directory whose files run under the deployment's interpreter.
TORCHSIDE = Path(__file__).parent / "torchside"
#: An interpreter that has not told its facts by then is not waited for.
FACTS_TIMEOUT_S = 30.0


def present_environment(
    interpreter: Sequence[str],
    *,
    device: str,
    threads: int,
    library: str,
    environ: Mapping[str, str] | None = None,
) -> Environment:
    """Return the environment of an interpreter for a model on ``device``.

    An empty interpreter is this process's own.

    Raises:
        ConfigError: the interpreter cannot be started or does not tell its facts.

    """
    if not interpreter and environ is None:
        gather = runpy.run_path(str(TORCHSIDE / "facts.py"))["gather"]
        return Environment.from_facts(gather(device, threads, library))
    argv = [*(interpreter or (sys.executable,)), str(TORCHSIDE / "facts.py")]
    argv += ["--device", device, "--threads", str(threads), "--library", library]
    return Environment.from_facts(_told(argv, dict(os.environ if environ is None else environ)))


def _told(argv: list[str], environ: dict[str, str]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=FACTS_TIMEOUT_S, env=environ, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(
            f"the interpreter {argv[0]} does not run: {error}; check [model] interpreter or "
            "--interpreter",
            code="no_interpreter",
        ) from error
    try:
        facts = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError) as error:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise ConfigError(
            f"the interpreter {argv[0]} told no facts about itself (exit code {done.returncode}: "
            f"{last}); it must be a Python of 3.10 or newer",
            code="no_interpreter",
        ) from error
    if not isinstance(facts, dict):
        raise ConfigError(
            f"the interpreter {argv[0]} told no facts about itself", code="no_interpreter"
        )
    return facts
