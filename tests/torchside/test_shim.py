"""The shim at an interpreter's start: next to nothing until torch, and nobody's place is taken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prewarm.store.torchside_copy import copy_torchside

#: As torch's package is to the shim: something that is imported.
TORCH = "import os; seen = dict(os.environ)"

ENV_JSON: dict[str, Any] = {
    "format": 1,
    "caches": {"TORCHINDUCTOR_CACHE_DIR": "tree/inductor"},
    "variables": {"OMP_NUM_THREADS": "3"},
    "entries": [],
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    copy_torchside(tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    """A private directory, and beside it a torch that tells what it found when it was imported."""
    (tmp_path / "own" / "torch").mkdir(parents=True)
    (tmp_path / "own" / "torch" / "__init__.py").write_text(TORCH)
    directory = tmp_path / "private"
    directory.mkdir()
    (directory / "env.json").write_text(json.dumps(ENV_JSON))
    return directory


def run(code: str, *path: Path, flags: tuple[str, ...] = (), **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, *flags, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "prewarm" not in done.stderr, done.stderr
    return done.stdout.strip()


def test_a_start_imports_nothing_beside_the_wait_for_torch(copy: Path, deployment: Path) -> None:
    code = "import sys; print(*sys.modules)"
    with_shim = run(code, copy, PREWARM_DIR=str(deployment)).split()
    plain = run(code, PREWARM_DIR=str(deployment)).split()
    assert set(with_shim) - set(plain) == {
        "sitecustomize", "prewarm_torchside", "prewarm_torchside.shim", "prewarm_torchside.imports",
    }  # fmt: skip


def test_nothing_is_read_or_written_before_torch(copy: Path, deployment: Path) -> None:
    (deployment / "env.json").write_text("it would be told")
    run("import json", copy, PREWARM_DIR=str(deployment))
    assert [path.name for path in deployment.iterdir()] == ["env.json"]


def test_torch_finds_the_variables_of_the_directory(copy: Path, deployment: Path) -> None:
    code = "import torch; print(torch.seen['OMP_NUM_THREADS'], torch.seen.get('{}'))"
    name = "TORCHINDUCTOR_CACHE_DIR"
    told = run(code.format(name), copy, deployment.parent / "own", PREWARM_DIR=str(deployment))
    assert told == f"3 {deployment}/tree/inductor"


def test_what_the_server_set_itself_stays(copy: Path, deployment: Path) -> None:
    code = "import torch; print(torch.seen['OMP_NUM_THREADS'])"
    own = deployment.parent / "own"
    assert run(code, copy, own, PREWARM_DIR=str(deployment), OMP_NUM_THREADS="1") == "1"


@pytest.mark.parametrize("flag", ["-S", "-I", "-E"])
def test_a_python_that_does_not_look_at_pythonpath_starts_without_the_shim(
    copy: Path, deployment: Path, flag: str
) -> None:
    code = "import sys; print([n for n in sys.modules if n.startswith('prewarm_torchside')])"
    assert run(code, copy, flags=(flag,), PREWARM_DIR=str(deployment)) == "[]"


# -- somebody else's sitecustomize

FOREIGN = "import os, sys; os.environ['FOREIGN'] = __name__; value = 7"


def test_the_foreign_one_takes_our_place(copy: Path, deployment: Path) -> None:
    foreign = deployment.parent / "foreign"
    foreign.mkdir()
    (foreign / "sitecustomize.py").write_text(FOREIGN)
    code = "import os, sitecustomize; print(os.environ['FOREIGN'], sitecustomize.value)"
    assert run(code, copy, foreign) == "sitecustomize 7", "without our variables"
    assert run(code, copy, foreign, PREWARM_DIR=str(deployment)) == "sitecustomize 7"


def test_one_in_site_packages_runs_too(copy: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=120
    )
    (site_packages,) = environment.glob("lib/python*/site-packages")
    (site_packages / "sitecustomize.py").write_text(FOREIGN)
    done = subprocess.run(
        [environment / "bin" / "python", "-c", "import os; print(os.environ['FOREIGN'])"],
        env={**os.environ, "PYTHONPATH": str(copy), "PREWARM_DIR": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "sitecustomize"


def test_usercustomize_runs_as_ever(copy: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "usercustomize.py").write_text("import os; os.environ['USERS'] = 'ran'")
    code = "import os, site; site.ENABLE_USER_SITE = True; site.execusercustomize()"
    code += "; print(os.environ['USERS'])"
    assert run(code, copy, own, PREWARM_DIR=str(tmp_path)) == "ran"


def test_an_error_in_the_foreign_one_is_told_as_ever(copy: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "sitecustomize.py").write_text("raise ValueError('of the foreign one')")
    done = subprocess.run(
        [sys.executable, "-c", "print('started')"],
        env={**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{foreign}"},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "started"
    assert "Error in sitecustomize" in done.stderr and "of the foreign one" in done.stderr


def test_two_shims_on_one_path_find_the_foreign_one_and_an_end(copy: Path, tmp_path: Path) -> None:
    copy_torchside(tmp_path / "second")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "sitecustomize.py").write_text(FOREIGN)
    code = "import os; print(os.environ['FOREIGN'])"
    assert run(code, copy, tmp_path / "second", foreign) == "sitecustomize"
