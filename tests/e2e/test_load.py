"""``prewarm.activate`` and ``prewarm.load`` in fresh processes, from one real build."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
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


def test_after_a_hook_nothing_but_torch_is_needed_and_a_recompile_is_warned_of(bed: Bed) -> None:
    into = bed.into("hooked")
    bed.place.hooked("own/v1", "--into", str(into))

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
