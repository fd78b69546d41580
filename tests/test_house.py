"""The house rules that a tool can hold: imports, sizes, names, the top level, dependencies."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "prewarm"
TORCHSIDE = PACKAGE / "torchside"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

LONGEST_FILE = 300
#: Over it for now, and to be parted; a file that has become short must leave this list.
STILL_LONG: set[str] = set()

#: What the repository's top level may hold beside dot files.
TOP_LEVEL = {
    "prewarm", "tests", "systemd", "pyproject.toml", "README.md", "CHANGELOG.md",
    "CONTRIBUTING.md", "LICENSE", "constraints.txt",
}  # fmt: skip

#: Imported names of distributions that are called otherwise.
DISTRIBUTIONS = {
    "pynvml": "nvidia-ml-py",
    "prometheus_client": "prometheus-client",
    "pydantic_core": "pydantic",
    "sqlite_utils": "sqlite-utils",
    "typing_extensions": "typing-extensions",
}


def _modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def _imports(file: Path, *, top_level_only: bool = False) -> Iterator[str]:
    """Yield the first name of every absolute import, of relative ones the module with a dot."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in _top_level(tree) if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            names = [node.module] if node.module else [alias.name for alias in node.names]
            yield from ("." + name for name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def _top_level(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what runs at import: no bodies of functions, nothing for type checkers alone."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        yield node
        waiting += ast.iter_child_nodes(node)


# -- which imports there are


def _lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "prewarm", ignore=ignored)
    return tmp_path


def test_imports_point_one_way() -> None:
    done = _lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("registry/scan.py", "from prewarm.build import child"),
        ("store/files.py", "import prewarm.deploy.hook"),
        ("build/lock.py", "from prewarm.deploy.hook import run_hook"),
        ("environment.py", "from prewarm import present"),
        ("config.py", "def late():\n    import prewarm.environment"),
        ("cli/status.py", "import torch"),
        ("present.py", "def late():\n    from transformers import AutoModel"),
        ("deploy/hook.py", "from prewarm.torchside import shim"),
        ("torchside/shim.py", "from prewarm.errors import PrewarmError"),
        ("torchside/loaders.py", "def late():\n    import psutil"),
        ("helpers.py", "import prewarm.errors"),
    ],
)
def test_an_import_against_the_flow_is_found(copy: Path, module: str, line: str) -> None:
    file = copy / "prewarm" / module
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    file.write_text(f"{before}\n{line}\n", encoding="utf-8")
    done = _lint_imports(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    dotted = "prewarm." + module.removesuffix(".py").replace("/", ".")
    assert dotted in done.stdout or "helpers" in done.stdout


def test_only_torchside_imports_torch() -> None:
    here = [file for file in _modules() if TORCHSIDE not in file.parents]
    assert [file for file in here if {"torch", "triton"} & set(_imports(file))] == []


def test_torchside_needs_the_standard_library_and_torch_only() -> None:
    known = {*sys.stdlib_module_names, "torch", "prewarm_torchside"}
    for file in TORCHSIDE.glob("*.py"):
        at_import = {name for name in _imports(file, top_level_only=True) if name[0] != "."}
        assert at_import <= known, file.name
        asked_for = {name for name in _imports(file) if name[0] != "."}
        assert asked_for <= known | {"safetensors"}, file.name


def test_the_shim_loads_no_torch_by_itself() -> None:
    # The last two are imported by a function of the shim, once a report is asked for.
    waiting, seen = ["sitecustomize", "shim", "events", "watch"], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        imported = set(_imports(TORCHSIDE / f"{name}.py", top_level_only=True))
        assert "torch" not in imported, name
        waiting += [one[1:] for one in imported if (TORCHSIDE / f"{one[1:]}.py").is_file()]
    assert "upstream" in seen, "the walk through the imports is broken"


def test_torchside_is_python_3_10() -> None:
    for file in TORCHSIDE.glob("*.py"):
        ast.parse(file.read_text(encoding="utf-8"), filename=file.name, feature_version=(3, 10))


# -- files


def test_no_file_is_long() -> None:
    long = {
        file.relative_to(PACKAGE).as_posix()
        for file in _modules()
        if len(file.read_text(encoding="utf-8").splitlines()) > LONGEST_FILE
    }
    assert long == STILL_LONG


def test_files_are_named_for_what_they_own() -> None:
    vague = {"utils", "util", "helpers", "common", "base", "manager", "misc"}
    assert [file for file in _modules() if file.stem in vague] == []


def test_nothing_is_left_to_do() -> None:
    unfinished = re.compile(r"\b(TODO|FIXME|XXX)\b|raise NotImplementedError")
    files = [*_modules(), *(ROOT / "tests").rglob("*.py")]
    this = Path(__file__).name
    left = [file for file in files if unfinished.search(file.read_text(encoding="utf-8"))]
    assert [file.name for file in left if file.name != this] == []


def test_the_top_level_holds_only_what_a_repository_needs() -> None:
    git = ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z"]
    if not (ROOT / ".git").exists():
        pytest.skip("no checkout")
    listed = subprocess.run(git, capture_output=True, text=True, check=True, timeout=60).stdout
    names = {path.partition("/")[0] for path in listed.split("\0") if path}
    assert {name for name in names if not name.startswith(".")} <= TOP_LEVEL


# -- packaging


def _names(requirements: list[str]) -> set[str]:
    names = (re.split(r"[^A-Za-z0-9._-]", one)[0] for one in requirements)
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names}


def test_dependencies_are_what_is_imported() -> None:
    imported = {
        DISTRIBUTIONS.get(name, name)
        for file in _modules()
        if TORCHSIDE not in file.parents
        for name in _imports(file)
        if name not in sys.stdlib_module_names and name != "prewarm"
    }
    assert imported == _names(PROJECT["dependencies"])


def test_every_requirement_is_pinned_by_name_and_version() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][\w.]*", pin)] == []
    extras = PROJECT["optional-dependencies"].values()
    wanted = _names([*PROJECT["dependencies"], *(one for extra in extras for one in extra)])
    assert wanted <= _names(pins)
