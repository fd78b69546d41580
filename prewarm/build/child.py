"""One child process: a request in, progress lines and one answer out, with limits and an end.

Owns starting, watching and ending a child of ``torchside`` under the declaration's interpreter. It
does not know what is asked. Rules:

- A child has its own process group, and whatever it leaves behind is ended with it.
- Its standard output is a file, not a pipe: a grandchild that stays cannot make the builder wait
  for end of file.
- Every way to end without an answer (deadline, signal, rubbish, memory) becomes one ``ChildFailed``
  with its reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from prewarm.build.process_group import MARKER, POLL_S, end_group, end_strays
from prewarm.errors import CompileFailed, PrewarmError
from prewarm.store.whole_file import write_errors

#: Largest standard output that is read: the protocol needs some hundred kilobytes.
OUTPUT_LIMIT_BYTES = 64 * 1024 * 1024
#: Share of the free memory that a child may take when nothing else is set.
MEMORY_SHARE = 0.85
#: With less room than this on its disk, a child that ended without a word had none.
FULL_BYTES = 64 * 1024
#: Lines of the log that are kept with a reason.
TAIL_LINES = 15

Progress = Callable[[Mapping[str, Any]], None]


class ChildFailed(CompileFailed):
    """A child ended without an answer; ``tail`` holds the end of its log."""

    def __init__(self, message: str, *, code: str, tail: tuple[str, ...] = ()) -> None:
        super().__init__(message, code=code)
        self.tail = tail


class Interrupted(PrewarmError):
    """The builder was asked to stop while a child was at work."""

    code = "interrupted"
    exit_code = 130


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


def run_child(
    spec: ChildSpec,
    request: Mapping[str, Any],
    *,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> dict[str, Any]:
    """Start a child, hand it the request and return its answer.

    Raises ``ChildFailed`` with the reason and the log's tail, ``Interrupted`` once ``stop`` is
    set, or ``NoSpace`` and ``NotWritable`` where its files cannot be written.
    """
    output = spec.workdir / "output.jsonl"
    asked = spec.workdir / "request.json"
    with write_errors(spec.workdir):
        spec.workdir.mkdir(parents=True, exist_ok=True)
        spec.log.parent.mkdir(parents=True, exist_ok=True)
        asked.write_text(json.dumps(request))  # a file: a child that never reads cannot block us
        output.touch()
        spec.log.touch()
        log_starts = spec.log.stat().st_size
    with asked.open("rb") as stdin, output.open("wb") as out, spec.log.open("ab") as log:
        process = _start(spec, stdin.fileno(), out.fileno(), log.fileno())
    with output.open("rb") as lines:
        watching = _Watching(spec, process, lines, progress, stop)
        try:
            watching.until_end()
        finally:
            end_group(process.pid)
            process.wait()
            end_strays(str(spec.workdir))
    tail = log_tail(spec.log, log_starts)
    try:
        return _answer(watching, process.returncode, tail)
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


def log_tail(log: Path, start: int = 0) -> tuple[str, ...]:
    """Return the last lines of a log, from byte ``start`` on."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - 16384))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(line for line in text.replace("\r", "\n").splitlines() if line.strip())[
        -TAIL_LINES:
    ]


def _start(spec: ChildSpec, stdin: int, out: int, log: int) -> subprocess.Popen[bytes]:
    argv = [*spec.interpreter, str(spec.copy / "prewarm_torchside")]
    try:
        return subprocess.Popen(
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


def _as_user(user: int | None) -> dict[str, Any]:
    """Return the arguments of another user, without the builder's groups."""
    if user is None:
        return {}
    return {"user": user, "group": pwd.getpwuid(user).pw_gid, "extra_groups": ()}


class _Watching:
    """Looks at a running child until it has answered, ended, or must be ended."""

    def __init__(
        self,
        spec: ChildSpec,
        process: subprocess.Popen[bytes],
        lines: Any,
        progress: Progress | None,
        stop: threading.Event | None,
    ) -> None:
        self._spec = spec
        self._process = process
        self._lines = lines
        self._progress = progress
        self._stop = stop or threading.Event()
        self._rest = b""
        self._read = 0
        self._limit = spec.memory_bytes or int(psutil.virtual_memory().available * MEMORY_SHARE)
        self.answer: dict[str, Any] | None = None
        self.failure: dict[str, Any] | None = None
        self.rubbish: str | None = None
        self.ended_for: tuple[str, str] | None = None
        self.interrupted = False

    def until_end(self) -> None:
        """Return once the child has ended by itself or must be ended; ``ended_for`` says why."""
        deadline_s = time.monotonic() + self._spec.timeout_s
        while True:
            ended = self._process.poll() is not None
            self._take_lines()
            if ended:
                return
            if time.monotonic() > deadline_s:
                self.ended_for = (
                    "timeout",
                    f"no answer within {self._spec.timeout_s:g} s (timeout_s); it was ended",
                )
                return
            used = _memory_of(self._process.pid)
            if used > self._limit:
                self.ended_for = (
                    "memory_limit",
                    f"it took {used / 2**30:.1f} GiB of memory, more than the "
                    f"{self._limit / 2**30:.1f} GiB that a build may take here; it was ended",
                )
                return
            if self._stop.wait(POLL_S):
                self.interrupted = True
                return

    def _take_lines(self) -> None:
        data = self._lines.read(OUTPUT_LIMIT_BYTES)
        self._read += len(data)
        if self._read > OUTPUT_LIMIT_BYTES:
            self.rubbish = f"more than {OUTPUT_LIMIT_BYTES} bytes of output"
            return
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            (kind, value), *others = message.items()
        except (ValueError, AttributeError):
            self.rubbish = line[:120].decode("utf-8", "replace")
            return
        if others or not isinstance(value, dict):
            self.rubbish = line[:120].decode("utf-8", "replace")
        elif kind == "progress" and self._progress:
            self._progress(value)
        elif kind == "answer":
            self.answer = value
        elif kind == "failure":
            self.failure = value


def _answer(watching: _Watching, returncode: int, tail: tuple[str, ...]) -> dict[str, Any]:
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


def _memory_of(pid: int) -> int:
    """Return the resident bytes of a process and its children."""
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for member in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += member.memory_info().rss
    return total
