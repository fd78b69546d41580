"""``prewarm.activate`` where a hook ran before: one directory, no torch, nothing but the library.

With a hook of its own and real torch: tests/e2e/test_load.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import prewarm
from prewarm.deploy.hook_directory import default_into
from prewarm.errors import PrewarmError

#: Prints what came of it, and what was imported.
_CALL = """\
import json, os, sys, warnings
import prewarm
asked, options = json.loads(sys.argv[1])
told = {"error": None, "warm": None, "directory": None}
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    try:
        found = prewarm.activate(*asked, **options)
        told |= {"warm": found.warm, "directory": str(found.directory), "shown": repr(found)}
    except prewarm.PrewarmError as error:
        told["error"] = [error.code, str(error)]
told["warnings"] = [str(one.message) for one in seen]
told["places"] = [one.filename for one in seen]
names = ("TORCHINDUCTOR_CACHE_DIR", "TORCHDYNAMO_DISABLE", "PREWARM_DIR", "PYTHONPATH")
told["variables"] = {name: os.environ.get(name) for name in names}
told["modules"] = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps(told))
"""

Called = Callable[..., dict[str, Any]]


@pytest.fixture
def called(tmp_path: Path) -> Called:
    def call(*models: str, environ: dict[str, str] | None = None, **options: Any) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-c", _CALL, json.dumps([models, options])],
            env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "home")} | (environ or {}),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    return call


@pytest.fixture
def filled(publish: Any, prewarm_process: Any, tmp_path: Path) -> Path:
    publish()
    into = tmp_path / "into"
    done = prewarm_process(
        "hook", "minilm/v1", "--manifest", publish.cache_dir, "--into", into, "--json"
    )
    assert done.returncode == 0, done.stderr
    return into


def test_the_directory_of_a_hook_is_used_as_it_is(filled: Path, called: Called) -> None:
    told = called("minilm/v1", environ={"PREWARM_DIR": str(filled)})

    assert (told["error"], told["warm"], told["warnings"]) == (None, True, [])
    assert told["directory"] == str(filled)
    [tree] = [path for path in filled.iterdir() if len(path.name) == 32]
    assert told["variables"]["TORCHINDUCTOR_CACHE_DIR"] == f"{tree}/inductor"
    assert told["variables"]["PYTHONPATH"].split(os.pathsep)[0] == f"{filled}/shim"
    ours = {"prewarm", "prewarm_torchside"}
    foreign = set(told["modules"]) - ours - set(sys.stdlib_module_names)
    assert not {name for name in foreign if not name.startswith(("_", "sitecustomize"))}


def test_a_model_that_is_not_in_it_is_told(filled: Path, called: Called) -> None:
    environ = {"PREWARM_DIR": str(filled)}
    cold = called("minilm/v1", "other", environ=environ)
    eager = called("other", environ=environ, on_miss="eager")
    failed = called("other", environ=environ, on_miss="fail")

    [warning] = cold["warnings"]
    assert f"other: {filled} (PREWARM_DIR) was filled for minilm/v1; name all models" in warning
    # It is told as coming from the caller.
    assert cold["places"] == ["<string>"]
    assert (cold["warm"], cold["variables"]["TORCHDYNAMO_DISABLE"]) == (False, None)
    assert eager["variables"]["TORCHDYNAMO_DISABLE"] == "1"
    assert failed["error"][0] == "not_published"
    assert failed["variables"]["TORCHINDUCTOR_CACHE_DIR"] is None


@pytest.mark.parametrize(("on_miss", "disabled"), [("cold", None), ("eager", "1")])
def test_a_directory_that_no_hook_has_filled_is_told_and_the_start_is_cold(
    tmp_path: Path, called: Called, on_miss: str, disabled: str | None
) -> None:
    told = called("m", environ={"PREWARM_DIR": str(tmp_path)}, on_miss=on_miss)

    assert (told["error"], told["warm"], told["directory"]) == (None, False, "None")
    assert "no hook has filled this directory" in told["warnings"][0]
    assert told["variables"]["TORCHDYNAMO_DISABLE"] == disabled


def test_into_asks_for_a_hook_of_its_own(publish: Any, filled: Path, called: Called) -> None:
    into = filled.with_name("own")
    told = called(
        "minilm/v1", environ={"PREWARM_DIR": str(filled)}, into=str(into),
        manifest=str(publish.cache_dir),
    )  # fmt: skip

    assert (told["warm"], told["warnings"], told["directory"]) == (True, [], str(into))
    assert told["variables"]["PREWARM_DIR"] == str(into)


def test_without_a_directory_the_hook_s_default_is_filled(
    publish: Any, called: Called, tmp_path: Path
) -> None:
    publish()
    told = called("minilm/v1", manifest=str(publish.cache_dir))

    expected = default_into(("minilm/v1",), {"XDG_CACHE_HOME": str(tmp_path / "home")})
    assert (told["warm"], told["directory"]) == (True, str(expected))
    assert "minilm/v1" in told["shown"]
    # What a manifest says of an entry is long.
    assert len(told["shown"]) < 300


def test_what_a_hook_misses_is_a_warning_or_raised(publish: Any, called: Called) -> None:
    publish()
    cold = called("nope", manifest=str(publish.cache_dir))
    failed = called("nope", manifest=str(publish.cache_dir), on_miss="fail")

    assert cold["error"] is None
    assert "nope: no manifest names this model" in cold["warnings"][0]
    assert failed["error"][0] == "not_published"


def test_activate_wants_a_model() -> None:
    with pytest.raises(TypeError, match="needs the name of a model"):
        prewarm.activate()


def test_the_package_tells_its_names_and_no_others() -> None:
    assert set(dir(prewarm)) >= {"activate", "load", "Recompiled", "PrewarmWarning"}
    for name in prewarm.__all__:
        assert getattr(prewarm, name) is not None
    assert prewarm.PrewarmError is PrewarmError
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = prewarm.nothing
