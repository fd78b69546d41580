"""One child process: a request in, progress lines and one answer out, with limits and an end.

Owns starting, watching and ending a child of ``torchside`` under the declaration's interpreter. It
does not know what is asked. Rules:

- A child has its own process group, and where possible its own cgroup; whatever it leaves behind is
  ended with it.
- Its standard output is a file, not a pipe: a grandchild that stays cannot make the builder wait
  for end of file.
- Every way to end without an answer (deadline, signal, rubbish, memory) becomes one ``ChildFailed``
  with its reason.
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from prewarm.build.cgroup import Cgroups
from prewarm.build.child_log import ChildLog
from prewarm.build.child_watch import Progress, Watching
from prewarm.build.interrupted import Interrupted as Interrupted
from prewarm.build.membership import Membership
from prewarm.build.process_group import MARKER
from prewarm.build.processes import Processes
from prewarm.errors import CompileFailed
from prewarm.store.whole_file import write_errors

#: Share of the free memory that a child may take when nothing else is set.
MEMORY_SHARE = 0.85
#: With less room than this on its disk, a child that ended without a word had none.
FULL_BYTES = 64 * 1024


class ChildFailed(CompileFailed):
    """A child ended without an answer; ``tail`` holds the end of its log."""

    def __init__(self, message: str, *, code: str, tail: tuple[str, ...] = ()) -> None:
        super().__init__(message, code=code)
        self.tail = tail


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What is started: the interpreter's argument list, where, with which variables and limits."""

    interpreter: tuple[str, ...]
    copy: Path
    workdir: Path
    log: Path
    environ: Mapping[str, str]
    timeout_s: float
    memory_bytes: int | None = None
    user: int | None = None
    cgroups: Cgroups | None = None


def run_child(
    spec: ChildSpec,
    request: Mapping[str, Any],
    *,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
    membership: Membership | None = None,
) -> dict[str, Any]:
    """Start a child, hand it the request and return its answer.

    With a ``membership`` it shares its device with others.

    Raises ``ChildFailed`` with the reason and the log's tail, ``Interrupted`` once ``stop`` is
    set, or ``NoSpace`` and ``NotWritable`` where its files cannot be written.
    """
    output = spec.workdir / "output.jsonl"
    asked = spec.workdir / "request.json"
    stop = stop or threading.Event()
    limit = spec.memory_bytes or int(psutil.virtual_memory().available * MEMORY_SHARE)
    with write_errors(spec.workdir):
        spec.workdir.mkdir(parents=True, exist_ok=True)
        spec.log.parent.mkdir(parents=True, exist_ok=True)
        asked.write_text(json.dumps(request))  # a file: a child that never reads cannot block us
        out = output.open("wb")
        log = ChildLog(spec.log)
    with out, log, output.open("rb") as lines:
        with asked.open("rb") as stdin:
            start = partial(_start, spec, limit, stdin.fileno(), out.fileno(), log.writer)
            processes = start() if membership is None else membership.start(start, stop)
        log.begin()
        watching = Watching(processes, lines, progress, stop)
        try:
            watching.until_end(spec.timeout_s, still_s=membership.still_s if membership else _never)
        finally:
            if membership is not None:
                membership.leave()
            returncode = processes.end()
    tail = log.tail()
    try:
        return _answer(watching, returncode, tail)
    except ChildFailed as error:
        # A child cannot tell by itself: what it would write its reason to is full too.
        if error.code in ("ended_early", "rubbish") and _is_full(spec.workdir):
            raise ChildFailed(
                f"no space left for {spec.workdir.parent}; free some space there or choose "
                "another state_dir",
                code="no_space",
                tail=tail,
            ) from error
        raise


def _start(spec: ChildSpec, limit_bytes: int, stdin: int, out: int, log: int) -> Processes:
    argv = [*spec.interpreter, str(spec.copy / "prewarm_torchside")]
    try:
        process = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=out,
            stderr=log,
            cwd=spec.workdir,
            env={**spec.environ, MARKER: str(spec.workdir)},
            start_new_session=True,
            **_as_user(spec.user),
        )
    except OSError as error:
        raise ChildFailed(
            f"the interpreter {spec.interpreter[0]} cannot be started: {error.strerror}; "
            "check [model] interpreter",
            code="no_interpreter",
        ) from error
    cgroup = None if spec.cgroups is None else spec.cgroups.new(limit_bytes)
    if cgroup is not None and not cgroup.add(process.pid):
        cgroup.end()
        cgroup = None
    return Processes(process, str(spec.workdir), limit_bytes, cgroup)


def _never(from_s: float, to_s: float) -> float:
    return 0.0


def _as_user(user: int | None) -> dict[str, Any]:
    """Return the arguments of another user, without the builder's groups."""
    if user is None:
        return {}
    return {"user": user, "group": pwd.getpwuid(user).pw_gid, "extra_groups": ()}


def _answer(watching: Watching, returncode: int, tail: tuple[str, ...]) -> dict[str, Any]:
    if watching.interrupted:
        raise Interrupted("interrupted; the work is queued again")
    last = f"; its last line: {tail[-1]}" if tail else ""
    if watching.ended_for:
        code, message = watching.ended_for
        raise ChildFailed(message + last, code=code, tail=tail)
    if watching.failure is not None:
        code = str(watching.failure.get("code") or "raised")
        raise ChildFailed(
            str(watching.failure.get("message") or "no reason given"), code=code, tail=tail
        )
    if watching.rubbish is not None:
        raise ChildFailed(
            f"it printed what is no message of the protocol: {watching.rubbish!r}",
            code="rubbish",
            tail=tail,
        )
    if watching.answer is not None and returncode == 0:
        return watching.answer
    if returncode < 0:
        name = signal.Signals(-returncode).name
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        raise ChildFailed(f"it was killed by {name}{hint}{last}", code="killed", tail=tail)
    raise ChildFailed(
        f"it ended with exit code {returncode} before it had answered (os._exit?){last}",
        code="ended_early",
        tail=tail,
    )


def _is_full(directory: Path) -> bool:
    free = os.statvfs(directory)
    return free.f_bavail * free.f_frsize < FULL_BYTES
