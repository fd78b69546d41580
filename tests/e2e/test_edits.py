"""One real scan, then one edit at a time: ``explain`` names just that fact, and the hook fails."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

MODEL = "net/v1"

DECLARATION = """\
[model]
match = "v*"
loader = "python"
factory = "tinynet:build"
path = ["src"]
kwargs = { width = 16 }
device = "cpu"
[compile]
mode = "default"
dynamic = false
[[shapes]]
name = "rows"
inputs.x = { dtype = "float32", shape = ["batch", 16] }
sizes = { batch = [4] }
"""

LIBRARY = """\
import torch


class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = torch.nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.layer(x))


def build(checkpoint, width):
    return Net(width)


other = build
"""

SOURCE = "def prepare(model):\n    return model\n"


@pytest.fixture(scope="module")
def place(make_place: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    site = tmp_path_factory.mktemp("site")
    (site / "tinynet.py").write_text(LIBRARY)
    (site / "tinynet-1.0.dist-info").mkdir()
    made = make_place(PYTHONPATH=str(site))
    (made.registry / MODEL).mkdir(parents=True)
    (made.registry / MODEL / "weights.bin").write_bytes(b"seed")
    (made.registry / "net" / "src").mkdir()
    (made.registry / "net" / "src" / "extra.py").write_text(SOURCE)
    (made.registry / "net" / "prewarm.toml").write_text(DECLARATION)
    scanned = made.prewarm("scan")
    assert scanned.returncode == 0, scanned.stdout + scanned.stderr
    return made


def explained(
    place: Any,
    *words: str,
    variables: Mapping[str, str] | None = None,
    through: tuple[str, ...] = (),
) -> tuple[int, dict[str, Any]]:
    done = run(place, "explain", MODEL, "--json", *words, variables=variables, through=through)
    assert done.stderr == ""
    told: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, told


def run(
    place: Any,
    *words: str,
    variables: Mapping[str, str] | None = None,
    through: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*through, sys.executable, "-m", "prewarm.cli", *words],
        env=place.environ() | dict(variables or {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def hooked(
    place: Any,
    *words: str,
    variables: Mapping[str, str] | None = None,
    through: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    return run(
        place, "hook", MODEL, "--into", str(place.root / "D"), "--on-miss", "fail", *words,
        variables=variables, through=through,
    )  # fmt: skip


def named(place: Any, fact: str, told_as: str, **how: Any) -> dict[str, Any]:
    """Check that explain names ``fact`` alone, and that the hook fails and says it too."""
    words = how.pop("words", ())
    code, told = explained(place, *words, **how)
    assert [one["fact"] for one in told["differences"]] == [fact], told
    assert code == 1
    failed = hooked(place, *words, **how)
    assert failed.returncode in (3, 4), failed.stdout + failed.stderr
    assert told_as in failed.stderr
    found: dict[str, Any] = told["differences"][0]
    return found


# -- the declaration and what lies beside it


@pytest.fixture
def edit(place: Any) -> Iterator[Callable[[str, str, str], None]]:
    """Edit one file below the registry for the length of a test."""
    kept: dict[Path, bytes] = {}

    def change(name: str, old: str, new: str) -> None:
        file = place.registry / "net" / name
        kept[file] = file.read_bytes()
        text = file.read_text()
        assert text.count(old) == 1
        file.write_text(text.replace(old, new))

    yield change
    for file, raw in kept.items():
        file.write_bytes(raw)


CPU = 'device = "cpu"\n'

DECLARED = [
    ("[model] dtype", CPU, CPU + 'dtype = "bfloat16"\n'),
    ("[model] grad", CPU, CPU + 'grad = "no_grad"\n'),
    ("[model] requires_grad", CPU, CPU + "requires_grad = false\n"),
    ("[model] autocast", CPU, CPU + 'autocast = "bfloat16"\n'),
    ("[model] memory_format", CPU, CPU + 'memory_format = "channels_last"\n'),
    ("[model] threads", CPU, CPU + "threads = 3\n"),
    ("[model] device", CPU, 'device = "cuda"\n'),
    ("[model] setup", CPU, CPU + 'setup = "extra:prepare"\n'),
    ("[model] factory", "tinynet:build", "tinynet:other"),
    ("[model] kwargs.width", "{ width = 16 }", "{ width = 8 }"),
    ("[model] kwargs.depth", "{ width = 16 }", "{ width = 16, depth = 2 }"),
    ("[compile] targets", "dynamic = false", 'dynamic = false\ntargets = ["forward"]'),
    ("[compile] mode", '"default"', '["max-autotune", "default"]'),
    ("[compile] dynamic", "dynamic = false", 'dynamic = "auto"'),
    ("[compile] fullgraph", "dynamic = false", "dynamic = false\nfullgraph = true"),
    (
        "[compile] config.freezing",
        "dynamic = false", "dynamic = false\nconfig = { freezing = true }",
    ),
    ("[[shapes]] rows inputs.x.dtype", 'dtype = "float32"', 'dtype = "float64"'),
    ("[[shapes]] rows inputs.x.shape", '["batch", 16]', '["batch", 32]'),
    ("[[shapes]] rows inputs.x.high", '["batch", 16]', '["batch", 16], high = 2'),
    ("[[shapes]] rows sizes", "[4]", "[4, 8]"),
    ("[[shapes]] rows call", 'name = "rows"', 'name = "rows"\ncall = "forward"'),
    (
        "[[shapes]] more",
        "[[shapes]]\n",
        '[[shapes]]\nname = "more"\nargs = [{ dtype = "float32", shape = [2, 16] }]\n[[shapes]]\n',
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fact", "old", "new"), DECLARED, ids=[one[0] for one in DECLARED])
def test_an_edit_of_the_declaration_is_named(
    place: Any, edit: Callable[[str, str, str], None], fact: str, old: str, new: str
) -> None:
    edit("prewarm.toml", old, new)

    named(place, fact, f"{fact} is ")


def test_an_edit_of_the_source_below_path_is_named_with_its_file(
    place: Any, edit: Callable[[str, str, str], None]
) -> None:
    edit("src/extra.py", "return model", "return  model")

    assert named(place, "source", "source is extra.py #")["recorded"].startswith("extra.py #")


def test_other_weights_are_named(place: Any, edit: Callable[[str, str, str], None]) -> None:
    edit("v1/weights.bin", "seed", "seeds")

    named(place, "checkpoint", "checkpoint is 1 files of 5 bytes here")


def test_other_weights_of_the_same_length_are_told_by_explain(
    place: Any, edit: Callable[[str, str, str], None]
) -> None:
    edit("v1/weights.bin", "seed", "deed")

    code, told = explained(place)

    assert (code, [one["fact"] for one in told["differences"]]) == (1, ["checkpoint"])


def test_a_wrong_declaration_is_told_with_its_line(
    place: Any, edit: Callable[[str, str, str], None]
) -> None:
    edit("prewarm.toml", "dynamic = false", "dynamc = false")

    assert "dynamc" in named(place, "prewarm.toml", "prewarm.toml is wrong")["present"]


@pytest.mark.parametrize(
    ("old", "new"),
    [('name = "rows"', 'name = "lines"'), ('match = "v*"', 'match = ["v1"]'), (CPU, f"{CPU}# a\n")],
)
def test_words_that_reach_no_graph_change_nothing(
    place: Any, edit: Callable[[str, str, str], None], old: str, new: str
) -> None:
    edit("prewarm.toml", old, new)

    assert explained(place)[0] == 0
    assert hooked(place).returncode == 0


# -- the environment


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("fact", "variables"),
    [
        ("threads", {"OMP_NUM_THREADS": "7", "MKL_DYNAMIC": "false"}),
        ("TORCHINDUCTOR_FREEZING", {"TORCHINDUCTOR_FREEZING": "1"}),
        ("TORCH_COMPILE_CACHE_KEY_TAG", {"TORCH_COMPILE_CACHE_KEY_TAG": "x"}),
        ("ATEN_CPU_CAPABILITY", {"ATEN_CPU_CAPABILITY": "default"}),
        ("TORCHINDUCTOR_FORCE_DISABLE_CACHES", {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}),
        ("TORCH_COMPILE_FORCE_DISABLE_CACHES", {"TORCH_COMPILE_FORCE_DISABLE_CACHES": "1"}),
        ("TORCHINDUCTOR_FX_GRAPH_CACHE", {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0"}),
        ("TORCHINDUCTOR_AUTOGRAD_CACHE", {"TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}),
        ("TORCHDYNAMO_DISABLE", {"TORCHDYNAMO_DISABLE": "1"}),
        ("TORCH_COMPILE_DISABLE", {"TORCH_COMPILE_DISABLE": "1"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_variable_of_the_deployment_is_named(
    place: Any, fact: str, variables: dict[str, str]
) -> None:
    named(place, fact, f"{fact} is ", variables=variables)


def test_another_compiler_is_named(place: Any, tmp_path: Path) -> None:
    wrapper = script(tmp_path / "my-g++", 'exec g++ "$@"')

    named(place, "cxx", "cxx is my-g++ here", variables={"CXX": str(wrapper)})


def test_another_version_of_the_compiler_is_named(place: Any, tmp_path: Path) -> None:
    script(tmp_path / "g++", "echo g++ 99.1")

    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    named(place, "cxx_version", "cxx version is g++ 99.1 here", variables={"PATH": path})


def test_another_torch_is_named(place: Any, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('not needed')\n")
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.99.0'\n")

    path = f"{tmp_path}{os.pathsep}{place.variables['PYTHONPATH']}"
    named(place, "torch", "torch is 2.99.0 here", variables={"PYTHONPATH": path})


def test_another_version_of_the_factory_s_library_is_named(place: Any, tmp_path: Path) -> None:
    (tmp_path / "tinynet-2.0.dist-info").mkdir()

    path = f"{tmp_path}{os.pathsep}{place.variables['PYTHONPATH']}"
    found = named(place, "library", "library is tinynet 2.0", variables={"PYTHONPATH": path})
    assert found["recorded"] == "tinynet 1.0"


def test_another_instruction_set_is_named(place: Any, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("flags : fpu avx2\nFeatures : fp asimd\n")
    mounting = f'mount --bind {tmp_path}/cpuinfo /proc/cpuinfo && exec "$@"'
    through = ("unshare", "--mount", "sh", "-c", mounting, "sh")
    if not shutil.which("unshare") or subprocess.run([*through, "true"], check=False).returncode:
        pytest.skip("mounting is not permitted here")

    named(place, "cpu_isa", "cpu isa is ", through=through)


def another_python() -> str | None:
    """Return a Python of another version that facts can be gathered under, if one is installed."""
    minors = [minor for minor in range(10, 16) if minor != sys.version_info.minor]
    beside = Path(sys.base_prefix).parent
    for minor in minors:
        for path in (shutil.which(f"python3.{minor}"), *beside.glob(f"3.{minor}.*/bin/python3")):
            asked = [str(path), "-c", "import sys; print(sys.version_info.minor)"]
            if path and subprocess.run(asked, capture_output=True).stdout == b"%d\n" % minor:
                return str(path)
    return None


def test_another_python_is_named(place: Any) -> None:
    python = another_python()
    if python is None:
        pytest.skip("no other Python is installed")

    named(place, "python_abi", "python abi is ", words=("--interpreter", python))


def test_another_cache_directory_is_told_and_is_no_miss(place: Any) -> None:
    variables = {"TORCHINDUCTOR_CACHE_DIR": "/tmp/mine"}

    code, told = explained(place, variables=variables)

    assert (code, told["differences"]) == (0, [])
    assert "TORCHINDUCTOR_CACHE_DIR is '/tmp/mine' here" in told["warnings"][0]
    assert hooked(place, variables=variables).returncode == 0


# -- nothing is edited


def test_unedited_it_starts_warm_here(place: Any) -> None:
    code, told = explained(place)
    assert (code, told["warm"], told["differences"]) == (0, True, []), told
    assert hooked(place).returncode == 0
    said = run(place, "explain", "net/v1").stdout
    assert said.startswith("net/v1: would start warm here (")
    assert len(said.splitlines()) == 1


def test_torch_itself_names_what_only_it_knows_and_nothing_else(place: Any, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'prewarm_torchside' in ''.join(sys.orig_argv):\n"
        "    import torch\n"
        "    torch.set_float32_matmul_precision('high')\n"
    )
    path = f"{tmp_path}{os.pathsep}{place.variables['PYTHONPATH']}"

    code, told = explained(place, "--deep", variables={"PYTHONPATH": path})

    assert (code, [one["fact"] for one in told["differences"]]) == (1, ["matmul_precision"])
    assert told["warnings"] == []
