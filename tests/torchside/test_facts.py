"""Facts: what torch would say, without torch; nothing published that is a path."""

from __future__ import annotations

import importlib.metadata
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import prewarm

FACTS = Path(prewarm.__file__).parent / "torchside" / "facts.py"
facts = runpy.run_path(str(FACTS))


def told(*arguments: str, **variables: str) -> dict[str, str | None]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
    done = subprocess.run(
        [sys.executable, str(FACTS), *arguments],
        env=kept | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    [line] = done.stdout.splitlines()
    answer = json.loads(line)
    assert isinstance(answer, dict)
    return answer


def test_versions_are_those_of_the_installed_packages() -> None:
    found = facts["gather"]("cpu", 0, "click")

    assert found["torch"] == importlib.metadata.version("torch")
    assert found["library"] == "click " + importlib.metadata.version("click")
    assert found["device"] == "cpu"
    assert found["capability"] is None


def test_a_library_that_is_not_there_is_told_and_none_is_none() -> None:
    assert facts["gather"]("cpu", 0, "no_such_library")["library"] == "no_such_library missing"
    assert facts["gather"]("cpu", 0, "")["library"] is None


def test_torch_is_not_imported_and_nothing_is_a_path() -> None:
    code = (
        "import runpy, sys; g = runpy.run_path(sys.argv[1])['gather'];"
        "found = g('cpu', 0, 'transformers'); assert 'torch' not in sys.modules;"
        "assert not [v for v in found.values() if v and '/' in v], found"
    )
    subprocess.run([sys.executable, "-c", code, str(FACTS)], check=True)


@pytest.mark.parametrize(
    ("variables", "threads"),
    [
        ({"OMP_NUM_THREADS": "1"}, "1"),
        ({"MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "7"}, "1"),
        ({"OMP_NUM_THREADS": "1,4"}, "1"),
        ({"OMP_NUM_THREADS": "7", "MKL_DYNAMIC": "false"}, "7"),
    ],
)
def test_threads_follow_the_variables(variables: dict[str, str], threads: str) -> None:
    assert told(**variables)["threads"] == threads
    assert told("--threads", "3", **variables)["threads"] == "3"


def test_threads_follow_the_affinity() -> None:
    code = (
        "import os, runpy, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "print(runpy.run_path(sys.argv[1])['gather']('cpu', 0, '')['threads'])"
    )
    kept = {"PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", code, str(FACTS)], env=kept, capture_output=True, check=True
    )
    assert done.stdout.strip() == b"1"


def test_variables_that_change_code_are_told_and_others_are_not() -> None:
    found = told(
        TORCHINDUCTOR_FREEZING="1",
        TORCH_COMPILE_CACHE_KEY_TAG="x",
        TORCHINDUCTOR_CACHE_DIR="/a",
        TRITON_CACHE_DIR="/b",
        TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS="0",
        TORCH_LOGS="+dynamo",
        TORCHDYNAMO_DISABLE="1",
        TORCHINDUCTOR_COMPILE_THREADS="1",
    )

    assert json.loads(found["variables"] or "") == {
        "TORCHINDUCTOR_FREEZING": "1",
        "TORCH_COMPILE_CACHE_KEY_TAG": "x",
    }


def test_a_compiler_by_path_is_another_variable_than_by_name_but_shows_no_path(
    tmp_path: Path,
) -> None:
    compiler = tmp_path / "g++-test"
    compiler.write_text("#!/bin/sh\necho g++-test 1.2.3\n")
    compiler.chmod(0o755)

    found = told(CXX=str(compiler))

    assert found["cxx"] == "g++-test"
    assert found["cxx_version"] == "g++-test 1.2.3"
    assert json.loads(found["variables"] or "")["CXX"].startswith("g++-test #")


def test_a_missing_compiler_is_none() -> None:
    found = told(CXX="no-such-compiler")

    assert found["cxx"] is None
    assert found["cxx_version"] is None


def test_another_interpreter_path_changes_the_build_paths() -> None:
    assert facts["build_paths"]("/a/torch") != facts["build_paths"]("/b/torch")


def test_without_a_gpu_a_cuda_model_has_no_device() -> None:
    found = told("--device", "cuda", CUDA_VISIBLE_DEVICES="")

    assert found["device"] is None
    assert found["sm_count"] is None


def test_a_package_that_is_edited_in_place_is_told_by_its_source(tmp_path: Path) -> None:
    package = tmp_path / "edited"
    (package / "below").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "below" / "operators.py").write_text("K = 2\n")

    def library() -> str:
        found = told("--library", "edited", PYTHONPATH=str(tmp_path))["library"]
        assert found is not None
        return found

    first = library()
    assert first.startswith("edited unknown #")
    assert library() == first
    (package / "below" / "operators.py").write_text("K = 3\n")
    assert library() != first

    # Installed, its version tells; installed as editable, its source still does.
    record = tmp_path / "edited-1.0.dist-info"
    record.mkdir()
    assert library() == "edited 1.0"
    (record / "direct_url.json").write_text('{"url": "file:///x", "dir_info": {"editable": true}}')
    assert library().startswith("edited 1.0 #")


def test_a_single_module_is_told_by_its_source_too(tmp_path: Path) -> None:
    (tmp_path / "single.py").write_text("K = 2\n")
    before = told("--library", "single", PYTHONPATH=str(tmp_path))["library"]
    (tmp_path / "single.py").write_text("K = 3\n")
    after = told("--library", "single", PYTHONPATH=str(tmp_path))["library"]
    assert before and after and before != after


def test_the_variable_of_ci_machines_is_in_torchs_keys_and_so_told() -> None:
    assert json.loads(told()["variables"] or "") == {}
    assert json.loads(told(CI="true")["variables"] or "") == {"CI": "true"}
