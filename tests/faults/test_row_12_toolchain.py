"""Row 12, a missing toolchain: scan, hook, explain and doctor say so before a server starts.

Upstream: pytorch #116696.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from prewarm.cli.main import main
from prewarm.store.status import Status

from ..shop import FAKE
from .bed import make_model
from .children import Children

Told = tuple[int, str, str]


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def no_compiler(root: Path) -> dict[str, str]:
    (root / "bin").mkdir()
    return {"PATH": str(root / "bin")}


def not_there(root: Path) -> dict[str, str]:
    return {"CXX": "clang++-99"}


def path_not_there(root: Path) -> dict[str, str]:
    return {"CXX": str(root / "toolchain" / "g++")}


def does_not_run(root: Path) -> dict[str, str]:
    # As a package half removed leaves it: the driver is there, its parts are not.
    script(root / "bin" / "g++", "echo 'cannot execute cc1plus' >&2; exit 1")
    return {"PATH": f"{root / 'bin'}:{os.environ['PATH']}"}


def wrapper_does_not_run(root: Path) -> dict[str, str]:
    return {"CXX": str(script(root / "bin" / "ccache-g++", 'exec /no/such/ccache g++ "$@"'))}


def closed(root: Path) -> dict[str, str]:
    path = script(root / "bin" / "my-g++", "exec g++")
    path.chmod(0o644)
    return {"CXX": str(path)}


#: Each with what the hook says, what doctor and scan say of it.
CASES = [
    ("no g++ on the PATH", no_compiler, "no C++ compiler is here (built with ",
     "g++ is not there", "g++ does not run here"),
    ("CXX names a program that is not there", not_there, "CXX is 'clang++-99' here",
     "clang++-99 is not there", "clang++-99 does not run here"),
    ("CXX names a path that is not there", path_not_there, "CXX is 'g++ #",
     "toolchain/g++ is not there", "toolchain/g++ does not run here"),
    ("a compiler that does not run", does_not_run, "the C++ compiler does not run here (built",
     "g++ is there but does not run", "g++ does not run here"),
    ("a CXX that does not run", wrapper_does_not_run, "the C++ compiler does not run here (built",
     "ccache-g++ is there but does not run", "ccache-g++ does not run here"),
    ("a CXX that may not be run", closed, "no C++ compiler is here (built with ",
     "my-g++ is not there", "my-g++ does not run here"),
]  # fmt: skip


@pytest.fixture
def told(shop, capsys: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    """Run a command of the deployment, whose interpreter is the builder's."""

    def run(*words: str) -> Told:
        interpreter = shlex.join([sys.executable, str(FAKE)])
        settings = shop.settings
        where = ("--cache-dir", str(settings.cache_dir), "--state-dir", str(settings.state_dir))
        code = main([*words, "--interpreter", interpreter, *where])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.mark.parametrize(
    ("case", "lose", "hooked", "doctored", "scanned"), CASES, ids=[case[0] for case in CASES]
)
def test_it_is_told_before_a_server_starts(
    shop,
    told: Callable[..., Told],
    monkeypatch: pytest.MonkeyPatch,
    fault_row,
    case: str,
    lose: Callable[[Path], dict[str, str]],
    hooked: str,
    doctored: str,
    scanned: str,
) -> None:
    shop.model("m1")
    assert shop.scan().all_warm
    for name, value in lose(shop.root).items():
        monkeypatch.setenv(name, value)
    into = ("--into", str(shop.root / "private"))

    code, _, line = told("hook", "m1", *into, "--on-miss", "fail")
    assert code == 4
    assert line.startswith("prewarm: error: m1: ")
    assert hooked in line
    assert "even on a perfect hit" in line
    assert "CXX" in line  # what to do
    assert line.count("\n") == 1
    code, _, line = told("hook", "m1", *into)
    assert code == 0
    assert line.endswith("; starting cold\n")
    said = line.removeprefix("prewarm: warning: ")
    assert not list((shop.root / "private").glob("*/inductor"))

    code, out, _ = told("explain", "m1", "--json")
    assert code == 1
    [compiler] = [one for one in json.loads(out)["differences"] if one["fact"].startswith("cxx_v")
                  or (one["fact"] == "cxx" and one["present"] is None)]  # fmt: skip
    assert "needs a C++ compiler even on a perfect hit" in compiler["cost"]

    code, out, _ = told("doctor", "--json")
    [check] = [one for one in json.loads(out)["checks"] if one["check"] == "C++ compiler"]
    assert (code, check["level"]) == (1, "fail")
    assert doctored in check["found"]
    assert "set CXX" in check["next_step"]

    result = shop.scan()
    [entry] = [entry for entry in result.entries if entry.status is Status.FAILED]
    assert entry.code == "no_compiler"
    assert scanned in entry.reason
    assert shop.builds("m1") == ["compiled"], "no child was started for it"
    assert [found["status"] for found in shop.manifest()["entries"]] == ["warm"], "for who has one"
    fault_row(row=12, case=case, alone=None, said=said)


def test_a_compiler_that_is_back_is_all_that_was_missing(
    shop, told: Callable[..., Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.model("m1")
    with monkeypatch.context() as patched:
        patched.setenv("CXX", "clang++-99")
        assert not shop.scan().all_warm
    assert shop.scan().all_warm
    into = ("--into", str(shop.root / "private"))
    assert told("hook", "m1", *into, "--on-miss", "fail")[::2] == (0, "")


def test_torch_alone_needs_a_compiler_on_a_perfect_hit(make_place, tmp_path, fault_row) -> None:
    model = make_model(make_place(), "m")
    children = Children(model, tmp_path)
    children.compile()
    calls, cache = [[[8, 64]]], children.cache / "inductor"
    with_one = model.alone(cache, calls, dynamic=False)
    assert (with_one["fx_hit"], with_one["compilers"], with_one["failed"]) == (1, 0, None)
    without = model.alone(cache, calls, dynamic=False, variables={"PATH": str(tmp_path)})
    assert without["failed"] is not None
    hooked = model.place.prewarm("doctor", variables={"PATH": str(tmp_path)})
    assert hooked.returncode == 1
    (line,) = [line for line in hooked.stdout.splitlines() if "C++ compiler" in line]
    fault_row(
        12,
        "no compiler beside a perfect hit (doctor)",
        alone=f"the first request raises {without['failed']}",
        said=line.split("C++ compiler")[1],
    )
