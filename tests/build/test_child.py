"""A child that ends in any way gives a reason and its log's tail, and leaves nobody behind."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import psutil
import pytest

from prewarm.build.child import ChildFailed, ChildSpec, Interrupted, run_child
from prewarm.build.process_group import MARKER
from prewarm.errors import NotWritable

FAKE_PACKAGE = "prewarm_torchside"


def spec(tmp_path: Path, code: str, **changes) -> ChildSpec:
    package = tmp_path / "copy" / FAKE_PACKAGE
    package.mkdir(parents=True)
    (package / "__main__.py").write_text(code)
    fields = {
        "interpreter": (sys.executable,),
        "copy": tmp_path / "copy",
        "workdir": tmp_path / "work",
        "log": tmp_path / "log",
        "environ": dict(os.environ),
        "timeout_s": 30.0,
    }
    return ChildSpec(**{**fields, **changes})


def alive(workdir: Path) -> list[psutil.Process]:
    marker = f"{MARKER}={workdir}".encode()
    found = []
    for process in psutil.process_iter():
        try:
            variables = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if marker in variables:
            found.append(process)
    return found


ANSWER = "import json; print(json.dumps({'answer': {'n': 1}}), flush=True)\n"


@pytest.mark.parametrize("name", ["request.json", "output.jsonl"])
def test_a_file_of_its_own_that_cannot_be_written_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / "work" / name).mkdir(parents=True)
    with pytest.raises(NotWritable, match="work"):
        run_child(spec(tmp_path, ANSWER), {})


def test_an_answer_and_its_progress_come_back(tmp_path: Path) -> None:
    code = (
        "import json, sys\n"
        "n = json.load(sys.stdin)['n']\n"
        "print(json.dumps({'progress': {'step': 'x'}}))\n"
        "print(json.dumps({'answer': {'n': n + 1}}))\n"
    )
    steps: list = []
    assert run_child(spec(tmp_path, code), {"n": 1}, progress=steps.append) == {"n": 2}
    assert steps == [{"step": "x"}]


@pytest.mark.parametrize(
    ("code", "failure", "words"),
    [
        ("import os; os._exit(0)", "ended_early", "exit code 0"),
        ("raise SystemExit(7)", "ended_early", "exit code 7"),
        ("import os; os.kill(os.getpid(), 9)", "killed", "SIGKILL"),
        ("import os; os.abort()", "killed", "SIGABRT"),
        ("print('Hello')", "rubbish", "Hello"),
        ("print('[1, 2]')", "rubbish", "[1, 2]"),
        ("print('{\"answer\": 5}')", "rubbish", "answer"),
        ("import sys; sys.stderr.write('last words\\n'); sys.exit(1)", "ended_early", "last words"),
        (
            "import json; print(json.dumps({'failure': {'code': 'raised', 'message': 'why'}}))",
            "raised",
            "why",
        ),
        ("import time; time.sleep(60)", "timeout", "within 1 s"),
    ],
)
def test_every_end_without_an_answer_has_its_reason(
    tmp_path: Path, code: str, failure: str, words: str
) -> None:
    with pytest.raises(ChildFailed) as caught:
        run_child(spec(tmp_path, code, timeout_s=1.0 if failure == "timeout" else 30.0), {})
    assert caught.value.code == failure
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_interpreter_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ChildFailed, match="cannot be started") as caught:
        run_child(spec(tmp_path, "", interpreter=("/nowhere/python",)), {})
    assert caught.value.code == "no_interpreter"


def test_memory_without_end_is_ended(tmp_path: Path) -> None:
    code = "held = []\nwhile True: held.append(bytearray(b'x') * (8 << 20))"
    with pytest.raises(ChildFailed) as caught:
        run_child(spec(tmp_path, code, memory_bytes=300 << 20), {})
    assert caught.value.code == "memory_limit"


@pytest.mark.parametrize("detached", [False, True])
def test_whoever_stays_behind_is_ended_and_nobody_waits_for_it(
    tmp_path: Path, detached: bool
) -> None:
    code = (
        "import subprocess, sys\n"
        "code = 'import time, signal; signal.signal(15, signal.SIG_IGN); time.sleep(600)'\n"
        f"subprocess.Popen([sys.executable, '-S', '-c', code], start_new_session={detached})\n"
    )
    started = spec(tmp_path, code + ANSWER)
    assert run_child(started, {}) == {"n": 1}
    _, left = psutil.wait_procs(alive(started.workdir), timeout=10)
    assert left == []


def test_an_interrupt_ends_the_child(tmp_path: Path, wait_until) -> None:
    code = f"import pathlib, time; pathlib.Path({str(tmp_path / 'on')!r}).touch(); time.sleep(600)"
    started, stop = spec(tmp_path, code), threading.Event()
    setter = threading.Thread(
        target=lambda: (wait_until((tmp_path / "on").exists), stop.set()), daemon=True
    )
    setter.start()
    with pytest.raises(Interrupted):
        run_child(started, {}, stop=stop)
    setter.join()
    assert psutil.wait_procs(alive(started.workdir), timeout=10)[1] == []
