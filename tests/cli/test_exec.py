"""``prewarm exec``: the hook, then the server in the same process, told apart from any other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.shell_completion import ShellComplete

from prewarm.cli.main import cli
from prewarm.store.torchside_copy import copy_torchside

if TYPE_CHECKING:
    from ..shop import Shop

#: Tells everything that a server finds when it starts.
TELL = """
import json, os, sys
print(json.dumps({"argv": sys.argv, "environ": dict(os.environ), "stdin": sys.stdin.read()}))
"""

Exec = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(shop: Shop, tmp_path: Path) -> Exec:
    """Return a run of ``prewarm exec`` on one model that a fake child has built."""
    from ..shop import FAKE

    shop.model("a")
    shop.scan()
    assert shop.entry("a").status == "warm"

    def started(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        settings = shop.settings
        return subprocess.run(
            [
                sys.executable, "-m", "prewarm.cli", "exec",
                "--cache-dir", settings.cache_dir, "--into", tmp_path / "private",
                "--interpreter", f"{sys.executable} {FAKE}", *words,
            ],
            env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path), **variables},
            input="typed", capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    return started


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_server_gets_the_hooks_variables_and_its_own_words(run: Exec, tmp_path: Path) -> None:
    done = run("a", "--", sys.executable, "-c", TELL, "--into", "--", "--json", "x y")
    assert done.stderr == ""
    server = told(done)
    assert server["argv"] == ["-c", "--into", "--", "--json", "x y"]
    assert server["stdin"] == "typed"
    environ = server["environ"]
    assert environ["PREWARM_DIR"] == str(tmp_path / "private")
    assert environ["TORCHINDUCTOR_CACHE_DIR"].startswith(str(tmp_path / "private"))
    assert environ["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path / "private" / "shim")


def test_the_server_is_this_process(run: Exec, tmp_path: Path) -> None:
    code = "import os, sys; os.execv(sys.executable, [sys.executable, '-m', 'prewarm.cli'] + {})"
    words = ["exec", "a", "--cache-dir", str(tmp_path / "cache"), "--into", str(tmp_path / "into")]
    words += ["--", sys.executable, "-c", "import os; print(os.getpid())"]
    child = subprocess.Popen(
        [sys.executable, "-c", code.format(words)], stdout=subprocess.PIPE, text=True
    )
    out, _ = child.communicate(timeout=60)
    assert int(out) == child.pid


def test_a_server_ends_at_a_closed_pipe_as_without_us(run: Exec) -> None:
    done = run("a", "--", "/bin/sh", "-c", "grep SigIgn /proc/self/status")
    assert done.returncode == 0, done.stderr
    ignored = int(done.stdout.split()[1], 16)
    assert not ignored & 1 << (signal.SIGPIPE - 1)


def test_the_servers_exit_code_is_passed_on(run: Exec) -> None:
    assert run("a", "--", sys.executable, "-c", "raise SystemExit(41)").returncode == 41


def test_the_servers_own_path_is_kept_and_a_shim_stands_once(run: Exec, tmp_path: Path) -> None:
    copy_torchside(tmp_path / "earlier")
    own = os.pathsep.join([str(tmp_path / "earlier"), "/srv/own"])
    server = told(run("a", "--", sys.executable, "-c", TELL, PYTHONPATH=own))
    assert server["environ"]["PYTHONPATH"].split(os.pathsep) == [
        str(tmp_path / "private" / "shim"),
        "/srv/own",
    ]


def test_a_start_below_another_start_reports_for_itself(run: Exec, tmp_path: Path) -> None:
    above, chosen = str(tmp_path / "reports" / "17-4"), str(tmp_path / "chosen")
    words = ("a", "--", sys.executable, "-S", "-c", TELL)
    assert "PREWARM_REPORT_DIR" not in told(run(*words, PREWARM_REPORT_DIR=above))["environ"]
    kept = told(run(*words, PREWARM_REPORT_DIR=chosen))["environ"]["PREWARM_REPORT_DIR"]
    assert kept == chosen


# -- what is missed


def test_a_miss_is_told_and_the_server_starts(run: Exec) -> None:
    done = run("b", "--", sys.executable, "-c", TELL)
    assert "prewarm: warning: b: no manifest names this model" in done.stderr
    assert done.stderr.rstrip().endswith("starting cold")
    assert "PREWARM_DIR" not in told(done)["environ"]


def test_eager_starts_without_compiling(run: Exec) -> None:
    done = run("b", "--on-miss", "eager", "--", sys.executable, "-c", TELL)
    assert told(done)["environ"]["TORCHDYNAMO_DISABLE"] == "1"


@pytest.mark.parametrize(("model", "code"), [("b", 3), ("a", 0)])
def test_fail_does_not_start_what_is_not_warm(run: Exec, model: str, code: int) -> None:
    done = run(model, "--on-miss", "fail", "--", sys.executable, "-c", "print('started')")
    assert (done.returncode, "started" in done.stdout) == (code, code == 0)


def test_a_python_that_keeps_the_shim_out_is_told(run: Exec) -> None:
    done = run("a", "--on-miss", "fail", "--", sys.executable, "-I", "-c", TELL)
    assert "with -I its Python is isolated, so the shim does not run" in done.stderr
    assert "PREWARM_DIR" in told(done)["environ"]


def test_the_hook_tells_it_of_its_interpreter(shop: Shop, tmp_path: Path) -> None:
    from ..shop import FAKE

    shop.model("a")
    shop.scan()
    interpreter = f"{sys.executable} -E {FAKE}"
    into = str(tmp_path / "private")
    code, err = shop.prewarm("hook", "a", "--into", into, "--interpreter", interpreter)
    assert code == 0
    assert "with -E its Python does not look at PYTHONPATH, so the shim does not run" in err


# -- wrong usage


@pytest.mark.parametrize("words", [("a",), ("a", "--"), ("a", "true")])
def test_without_a_command_the_dashes_are_named(run: Exec, words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert "after `--`; see `prewarm exec --help`" in done.stderr


def test_without_a_model_one_is_asked_for(run: Exec) -> None:
    done = run("--", "true")
    assert done.returncode == 2
    assert "MODEL" in done.stderr


def test_a_command_that_is_not_there_ends_as_in_a_shell_before_any_work(
    run: Exec, tmp_path: Path
) -> None:
    done = run("a", "--", "no-such-command", "--json")
    assert done.returncode == 127
    assert done.stderr.startswith("prewarm: error: no-such-command: it is not on PATH")
    assert done.stdout == ""
    assert not (tmp_path / "private").exists()


def test_a_file_that_is_no_program_is_told(run: Exec, tmp_path: Path) -> None:
    (tmp_path / "serve").write_text("no first line")
    (tmp_path / "serve").chmod(0o755)
    done = run("a", "--", str(tmp_path / "serve"))
    assert done.returncode == 126
    assert "cannot be started: Exec format error" in done.stderr


@pytest.mark.parametrize(
    ("words", "incomplete", "found"),
    [(["exec", "a"], "--on-m", "--on-miss"), (["exec", "a", "--", "python"], "serve", "serve")],
)
def test_options_are_completed_before_the_dashes_and_files_behind(
    words: list[str], incomplete: str, found: str
) -> None:
    complete = ShellComplete(cli, {}, "prewarm", "_PREWARM_COMPLETE")
    items = complete.get_completions(words, incomplete)
    assert [item.value for item in items] == [found]
    assert [item.type for item in items] == ["file" if "--" in words else "plain"]
