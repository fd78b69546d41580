"""What the builder asks children for: a probe, a compile run, a proof, a start that is timed.

Knows their variables and directories.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prewarm.build.child import ChildSpec, run_child
from prewarm.build.child_watch import Progress
from prewarm.build.cold import with_own_seconds
from prewarm.build.compile_threads import thread_variables
from prewarm.build.membership import Membership
from prewarm.build.place import Place
from prewarm.build.turn_door import VARIABLE as TURN
from prewarm.build.turn_door import open_door
from prewarm.registry.declaration import Declaration
from prewarm.store.whole_file import write_errors

#: Set on both sides. A precompiled header lies in the default cache directory and would be made
#: again, by g++, for each other user; without it the same kernels hit.
VARIABLES = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}

#: Never handed on to a child: where the builder itself caches or reports.
_NOT_HANDED_ON = (
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "TRITON_HOME",
    "PREWARM_DIR",
    "PREWARM_REPORT_DIR",
    "NOTIFY_SOCKET",
    TURN,
)


@dataclass(frozen=True, slots=True)
class Desk:
    """What all children of one entry have in common."""

    declaration: Declaration
    checkpoint: Path
    copy: Path
    log: Path
    memory_bytes: int | None
    stop: threading.Event
    progress: Progress | None = None
    place: Place = field(default_factory=Place)
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def interpreter(self) -> tuple[str, ...]:
        """The argument list of the python that runs the children."""
        return self.declaration.interpreter or (sys.executable,)

    def variables(self) -> dict[str, str]:
        """Return what a deployment must set beside the directories.

        As it stands in the manifest.
        """
        threads = self.declaration.model.threads
        return {**VARIABLES, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}


def ask_probe(desk: Desk, workdir: Path, device: str) -> dict[str, Any]:
    """Ask torch itself about the interpreter and the device; see ``torchside/probe.py``."""
    return _ask(desk, workdir, {"kind": "probe", "device": device}, cache=workdir / "cache")


def ask_compile(
    desk: Desk, workdir: Path, *, cache: Path, mode: str, recompile_limit: int | None
) -> dict[str, Any]:
    """Compile all declared calls into ``cache``; see ``torchside/compiling.py``.

    The child is a member of the turns on its device: it holds still while somebody else has it.
    """
    request = {"kind": "compile", "mode": mode, "recompile_limit": recompile_limit}
    place = desk.place
    membership = Membership(place.turns)
    with open_door(place.turns, membership.member, desk.stop) as door:
        variables = {**thread_variables(desk.environ, builds=place.builds), **door}
        answer = _ask(
            desk, workdir, request, cache=cache, variables=variables, membership=membership
        )
    answer["calls"] = with_own_seconds(answer["calls"], membership.member.alone_s)
    return answer


def ask_proof(
    desk: Desk,
    workdir: Path,
    *,
    cache: Path,
    mode: str,
    order: Sequence[int],
    full: bool,
    user: int | None,
    recompile_limit: int | None = None,
    shim: bool = False,
) -> dict[str, Any]:
    """Make the calls in ``order`` from ``cache`` in a fresh process.

    With ``shim`` its mends are made too, as in a deployment that has the shim on its path; without
    it the process is only watched. See ``torchside/proving.py``.
    """
    request = {"kind": "prove", "mode": mode, "order": list(order), "full": full}
    home = workdir / "home"
    with write_errors(home):
        (home / "tmp").mkdir(parents=True)
        if user is not None:
            for path in (workdir, home, home / "tmp"):
                os.chown(path, user, -1)
    deployment = _deployment(workdir, recompile_limit) if shim else None
    return _ask(desk, workdir, request, cache=cache, home=home, user=user, deployment=deployment)


def ask_start(
    desk: Desk,
    workdir: Path,
    *,
    cache: Path,
    mode: str,
    variables: Mapping[str, str],
    asked: Mapping[str, Any],
) -> dict[str, Any]:
    """Start once as a server does, timed; see ``torchside/starting.py``.

    ``variables`` are what the hook gave, if it ran, and stand above ``cache``.
    """
    request = {"kind": "start", "mode": mode, **asked}
    return _ask(desk, workdir, request, cache=cache, variables=variables)


def _deployment(workdir: Path, recompile_limit: int | None) -> Path:
    """Write what the hook gives a deployment beside its caches, as far as the shim acts on it."""
    directory = workdir / "deployment"
    text = json.dumps(
        {
            "format": 1,
            "caches": {},
            "variables": {},
            "entries": [{"compile": {"recompile_limit": recompile_limit}}],
        }
    )
    with write_errors(directory):
        directory.mkdir(parents=True)
        directory.chmod(0o755)
        (directory / "env.json").write_text(text, encoding="utf-8")
        (directory / "env.json").chmod(0o644)
    return directory


def _ask(
    desk: Desk,
    workdir: Path,
    request: dict[str, Any],
    *,
    cache: Path,
    home: Path | None = None,
    user: int | None = None,
    deployment: Path | None = None,
    variables: Mapping[str, str] | None = None,
    membership: Membership | None = None,
) -> dict[str, Any]:
    request |= {"declaration": desk.declaration.request(), "checkpoint": str(desk.checkpoint)}
    environ = {name: value for name, value in desk.environ.items() if name not in _NOT_HANDED_ON}
    own_path = environ.get("PYTHONPATH")
    environ |= {
        **desk.variables(),
        "PYTHONPATH": os.pathsep.join([str(desk.copy), *([own_path] if own_path else [])]),
        "PREWARM_REPORT_DIR": str(workdir / "report"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        **desk.place.variables(),
        **(variables or {}),
    }
    if deployment is not None:
        environ["PREWARM_DIR"] = str(deployment)
    if home is not None:
        # torch's default cache directories are watched too, and others write to the shared ones.
        environ |= {"HOME": str(home), "TMPDIR": str(home / "tmp")}
        environ.pop("XDG_CACHE_HOME", None)
    spec = ChildSpec(
        interpreter=desk.interpreter,
        copy=desk.copy,
        workdir=workdir,
        log=desk.log,
        environ=environ,
        timeout_s=desk.declaration.timeout_s,
        memory_bytes=desk.memory_bytes,
        user=user,
        cgroups=desk.place.cgroups,
    )
    return run_child(spec, request, progress=desk.progress, stop=desk.stop, membership=membership)
