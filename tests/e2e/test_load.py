"""``prewarm.activate`` and ``prewarm.load`` in fresh processes, from one real build."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..faults.bed import Model, make_model
from ..place import TIMEOUT_S, Place

SERVER = Path(__file__).with_name("loading_server.py")


@dataclass(frozen=True)
class Bed:
    """The built model and how its servers are started."""

    model: Model

    @property
    def place(self) -> Place:
        return self.model.place

    def start(self, way: str, name: str, **variables: str) -> dict[str, Any]:
        """Start a server; its hook's directory is its own."""
        environ = self.place.environ() | {"XDG_CACHE_HOME": str(self.into(name)), **variables}
        environ = {key: value for key, value in environ.items() if value}
        done = subprocess.run(
            [sys.executable, SERVER, "own/v1", str(self.model.directory / "v1"), way],
            env=environ,
            cwd=self.place.root,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        told: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return told

    def into(self, name: str) -> Path:
        return self.place.root / "deployed" / name

    def filled(self, name: str) -> Path:
        """Return the only private directory below a server's cache."""
        [found] = (self.into(name) / "prewarm" / "deployments").iterdir()
        return found

    def report(self, directory: Path) -> dict[str, Any]:
        """Return what the last start compiled, as ``drift`` tells."""
        told = self.place.prewarm("drift", str(directory), "--json")
        drift: dict[str, Any] = json.loads(told.stdout)
        return drift


@pytest.fixture(scope="module")
def bed(make_place: Callable[..., Place]) -> Bed:
    model = make_model(make_place(), "own")
    done = model.place.prewarm("scan")
    assert done.returncode == 0, done.stdout + done.stderr
    return Bed(model)


def test_a_loaded_model_starts_warm_answers_as_eager_does_and_raises_before_a_recompile(
    bed: Bed,
) -> None:
    told = bed.start("whole", "raise", ON_RECOMPILE="raise")

    assert (told["load_error"], told["load_warnings"]) == (None, [])
    assert told["difference"] < 1e-5
    assert (told["declared_error"], told["declared_warnings"]) == (None, [])
    assert told["share"] == 0.5  # the module's own attributes
    # Also in another thread nothing is compiled.
    difference, warned, error = told["threaded"]
    assert difference < 1e-5
    assert (warned, error) == ([], None)
    for name in ("other_error", "again_error"):
        kind, code, text = told[name]
        assert (kind, code) == ("Recompiled", "recompiled")
        assert "a call with batch = 3 is compiled anew" in text
    # What is declared is answered as before.
    assert told["after"] < 1e-5
    assert told["after_error"] is None
    drift = bed.report(bed.filled("raise"))
    [start] = drift["starts"]
    assert (start["counts"], start["graphs"], start["graphs_found"]) == ({}, [], 1)
    assert (start["cannot_tell"], drift["compiled"]) == ([], False)


@contextmanager
def serving(place: Place) -> Iterator[str]:
    """Run the daemon over what was built, and yield where it answers."""
    with tempfile.TemporaryDirectory(prefix="prewarm-") as short:
        socket = Path(short) / "s"
        environ = place.environ() | {"PREWARM_SOCKET": str(socket), "PREWARM_LISTEN": "off"}
        with (place.root / "served").open("w") as told:
            daemon = subprocess.Popen(
                [sys.executable, "-m", "prewarm.cli", "serve"], env=environ, stdout=told,
                stderr=told,
            )  # fmt: skip
        try:
            yield f"unix:{socket}"
        finally:
            daemon.terminate()
            daemon.wait(TIMEOUT_S)


def until(condition: Callable[[], Any]) -> Any:
    """Return what is true at last; a daemon on a busy machine takes its time."""
    ends_s = time.monotonic() + TIMEOUT_S
    while not (found := condition()):
        assert time.monotonic() < ends_s, "the condition did not come true"
        time.sleep(0.05)
    return found


def test_after_a_hook_nothing_but_torch_is_needed_and_the_builder_is_told_of_a_recompile(
    bed: Bed,
) -> None:
    into = bed.into("hooked")
    with serving(bed.place) as address:
        until(lambda: Path(address.removeprefix("unix:")).exists())
        bed.place.hooked("own/v1", "--into", str(into), "--manifest", address)
        require_warned(bed, into)
        entry = until(lambda: (found := bed.place.status()["own/v1"])["starts"] and found)

    [start] = entry["starts"]
    assert (start["compiled"], start["counts"]["graphs_compiled"]) == (True, 1)
    assert (start["builder"], start["bundle"]) == ("test", entry["bundle"]["sha256"])
    assert start["first_answer_s"] > 0
    [missing] = entry["missing"]
    assert (missing["shape_set"], missing["sizes"]) == ("rows", [{"batch": 3}])
    assert missing["toml"].splitlines()[-1] == "sizes = [{ batch = 3 }]"


def require_warned(bed: Bed, into: Path) -> None:
    # As a pod does it: neither registry nor cache_dir are there, nor the builder's packages.
    told = bed.start(
        "whole", "none", PREWARM_DIR=str(into), BLOCKED="1", PREWARM_REGISTRY="",
        PREWARM_CACHE_DIR="", PREWARM_STATE_DIR="",
    )  # fmt: skip

    assert (told["load_error"], told["load_warnings"]) == (None, [])
    assert max(told["difference"], told["other"]) < 1e-5
    assert told["other_warnings"] == [
        "own/v1: a call with batch = 3 is compiled anew; to have it warm, "
        'in [[shapes]] "rows" add { batch = 3 } to sizes'
    ]
    # By now it is compiled.
    assert (told["again_warnings"], told["again_error"]) == ([], None)
    [start] = bed.report(into)["starts"]
    [graph] = start["graphs"]
    assert graph["advice"] == ['in [[shapes]] "rows" add { batch = 3 } to sizes']


def test_without_its_packages_the_hook_says_which_and_the_way_around(bed: Bed) -> None:
    told = bed.start("only_activated", "blocked", BLOCKED="1")

    [warning] = told["warnings"]
    assert "needs the package zstandard here" in warning
    assert "run `prewarm hook own/v1 --into DIR` before this process" in warning
    assert told["warm"] is False
    assert told["failed"] == ["PrewarmError", "missing_package", warning]


def test_activate_makes_a_server_s_own_compile_warm(bed: Bed) -> None:
    told = bed.start("activated", "activated")

    assert (told["warm"], told["warnings"], told["error"]) == (True, [], None)
    [start] = bed.report(bed.filled("activated"))["starts"]
    assert (start["counts"], start["graphs"], start["graphs_found"]) == ({}, [], 1)


def test_where_torch_was_imported_before_it_says_so_and_starts_warm(bed: Bed) -> None:
    told = bed.start("imported", "imported")

    [warning] = told["warnings"]
    assert "torch was imported before prewarm.activate()" in warning
    assert told["difference"] < 1e-5
    [start] = bed.report(bed.filled("imported"))["starts"]
    assert (start["counts"], start["graphs"], start["graphs_found"]) == ({}, [], 1)


def test_where_torch_has_compiled_before_nothing_is_changed(bed: Bed) -> None:
    told = bed.start("compiled", "late")

    [warning] = told["warnings"]
    assert "torch has compiled in this process already" in warning
    assert told["directory"] is None
    assert told["error"][:2] == ["TooLate", "too_late"]
    assert told["variable"] is None or str(bed.into("late")) not in told["variable"]


COLD = {
    # Nothing is published: by the registry's own declaration.
    "nothing": ({"PREWARM_CACHE_DIR": "/nowhere"}, "/nowhere is not there"),
    # Published for another environment, and no registry is seen: by what was proven there.
    "elsewhere": ({"CI": "1", "PREWARM_REGISTRY": ""}, "CI is '1' here"),
}


@pytest.mark.parametrize("case", COLD)
def test_without_a_bundle_the_model_is_built_cold(bed: Bed, case: str) -> None:
    variables, reason = COLD[case]
    cold = str(bed.place.root / "cold")
    told = bed.start(
        "whole", case, TORCHINDUCTOR_CACHE_DIR=cold,
        TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS="0", **variables,
    )  # fmt: skip

    assert told["load_error"] is None
    [warning] = told["load_warnings"]
    assert reason in warning
    assert told["difference"] < 1e-5
    assert "batch = 3 is compiled anew" in told["other_warnings"][0]
