"""The hook as a process: exit codes, env files, misses, damage, two at once, foreign users."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from prewarm.store.bundle import bundle_path
from prewarm.store.leases import leases_directory
from prewarm.store.manifest import manifests_directory

from .conftest import FILES, Publisher

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def hook(publish: Publisher, tmp_path: Path, prewarm_process: Run) -> Run:
    def run(
        *arguments: object, model: str = "minilm/v1", **how: object
    ) -> subprocess.CompletedProcess[str]:
        return prewarm_process(
            "hook", model, "--manifest", publish.cache_dir, "--into", tmp_path / "D",
            *arguments, **how,
        )  # fmt: skip

    return run


def sourced(env_file: Path) -> dict[str, str]:
    done = subprocess.run(
        ["sh", "-c", f'set -a; . "{env_file}"; exec env -0'],
        capture_output=True,
        check=True,
        env={},
    )
    return dict(line.split("=", 1) for line in done.stdout.decode().split("\0") if "=" in line)


def test_a_warm_model_gets_its_directory_and_env_file(
    publish: Publisher, hook: Run, tmp_path: Path
) -> None:
    info = publish()
    env_file = tmp_path / "env file"

    done = hook("--env-file", env_file, "--on-miss", "fail", umask=0o077)

    assert (done.returncode, done.stderr) == (0, "")
    into, tree = tmp_path / "D", tmp_path / "D" / info.sha256[:32]
    variables = sourced(env_file)
    assert variables["TORCHINDUCTOR_CACHE_DIR"] == str(tree / "inductor")
    assert variables["TRITON_CACHE_DIR"] == str(tree / "triton")
    assert variables["PREWARM_DIR"] == str(into)
    assert variables["PYTHONPATH"] == str(into / "shim")
    assert variables["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] == "0"
    assert "CUDA_VISIBLE_DEVICES" not in variables
    assert env_file.stat().st_mode & 0o777 == 0o644
    assert (into / "env").read_bytes() == env_file.read_bytes()
    env_json = json.loads((into / "env.json").read_text())
    assert env_json["caches"]["TORCHINDUCTOR_CACHE_DIR"] == f"{tree.name}/inductor"
    assert env_json["entries"][0]["model"] == "minilm/v1"
    assert str(tmp_path) not in (into / "env.json").read_text()
    assert {name: (tree / name).read_bytes() for name in FILES} == FILES
    for path in (into, *into.rglob("*")):
        wanted = 0o755 if path.is_dir() else 0o644
        assert path.stat().st_mode & 0o777 == wanted, path


def test_the_shim_starts_in_a_python_with_the_env(
    publish: Publisher, hook: Run, tmp_path: Path
) -> None:
    publish()
    hook("--env-file", tmp_path / "env")

    done = subprocess.run(
        [sys.executable, "-c", "import sitecustomize; print(sitecustomize.__file__)"],
        env=sourced(tmp_path / "env") | {"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == str(tmp_path / "D" / "shim" / "sitecustomize.py")
    assert done.stderr == ""


def test_a_second_hook_changes_nothing(publish: Publisher, hook: Run, tmp_path: Path) -> None:
    publish()
    hook("--env-file", tmp_path / "env")
    before = {path: path.lstat().st_ctime_ns for path in tmp_path.rglob("*")}

    # As a unit does whose EnvironmentFile was written by the hook of the start before.
    done = hook("--env-file", tmp_path / "env", environ=sourced(tmp_path / "env"))

    assert (done.returncode, done.stderr) == (0, "")
    assert {path: path.lstat().st_ctime_ns for path in tmp_path.rglob("*")} == before


def test_the_deployment_s_own_python_path_is_kept(
    publish: Publisher, hook: Run, tmp_path: Path
) -> None:
    publish()

    hook("--env-file", tmp_path / "env", environ={"PYTHONPATH": "/opt/app:/opt/lib"})

    assert sourced(tmp_path / "env")["PYTHONPATH"] == f"{tmp_path}/D/shim:/opt/app:/opt/lib"


def test_without_an_env_file_what_to_source_is_printed(publish: Publisher, hook: Run) -> None:
    publish()

    assert 'TORCHINDUCTOR_CACHE_DIR="' in hook().stdout
    assert 'export TORCHINDUCTOR_CACHE_DIR="' in hook("--format", "sh").stdout
    assert "TORCHINDUCTOR_CACHE_DIR=/" in hook("--format", "docker").stdout


def test_json_tells_models_directory_and_variables(
    publish: Publisher, hook: Run, tmp_path: Path
) -> None:
    info = publish()

    told = json.loads(hook("--json").stdout)

    assert told["into"] == str(tmp_path / "D")
    assert told["filled"] is True
    assert told["variables"]["PREWARM_DIR"] == str(tmp_path / "D")
    assert told["models"][0]["bundle"] == info.sha256
    assert told["misses"] == []


def make_unknown(publish: Publisher) -> None:
    publish("gpt2")


def make_other_torch(publish: Publisher) -> None:
    publish(facts={"torch": "2.0.0"})


def make_untrusted(publish: Publisher) -> None:
    publish()
    manifests_directory(publish.cache_dir).chmod(0o777)


def make_none(publish: Publisher) -> None:
    publish.cache_dir.mkdir()


def make_torn(publish: Publisher) -> None:
    publish()
    [path] = manifests_directory(publish.cache_dir).iterdir()
    path.write_bytes(path.read_bytes()[:200])


def make_cut_bundle(publish: Publisher) -> None:
    info = publish()
    path = bundle_path(publish.cache_dir, info.sha256)
    path.write_bytes(path.read_bytes()[:-9])


def make_no_bundle(publish: Publisher) -> None:
    info = publish()
    bundle_path(publish.cache_dir, info.sha256).unlink()


MISSES = [
    (make_unknown, 3, "no manifest names this model"),
    (make_other_torch, 4, "the bundle was built with 2.0.0"),
    (make_none, 5, "is not there; name the builder's cache directory"),
    (make_untrusted, 5, "can be written by everybody"),
    (make_torn, 5, "is no JSON"),
    (make_cut_bundle, 3, "as published; the builder builds it again with its next `prewarm scan`"),
    (make_no_bundle, 3, "cannot be read (No such file or directory); the builder builds it again"),
]


@pytest.mark.parametrize(
    ("make", "code", "told"), MISSES, ids=[make[0].__name__ for make in MISSES]
)
def test_a_miss_fails_starts_cold_or_starts_eager(
    publish: Publisher,
    hook: Run,
    tmp_path: Path,
    make: Callable[[Publisher], None],
    code: int,
    told: str,
) -> None:
    make(publish)
    env_file = tmp_path / "env"

    failed = hook("--on-miss", "fail", "--env-file", env_file)
    assert failed.returncode == code
    assert not env_file.exists()
    [line] = failed.stderr.splitlines()
    assert line.startswith("prewarm: error: ")
    assert told in line

    cold = hook("--env-file", env_file)
    assert cold.returncode == 0
    [line] = cold.stderr.splitlines()
    assert line.startswith("prewarm: warning: ")
    assert line.endswith("; starting cold")
    assert told in line
    assert [line for line in env_file.read_text().splitlines() if not line.startswith("#")] == []

    eager = hook("--on-miss", "eager", "--env-file", env_file)
    assert eager.returncode == 0
    assert eager.stderr.endswith("; starting without compiling\n")
    assert sourced(env_file)["TORCHDYNAMO_DISABLE"] == "1"

    again = json.loads(hook("--on-miss", "fail", "--json").stdout)
    assert again["error"]["code"]
    assert told in again["error"]["message"]


def test_a_partial_model_fails_or_starts_from_its_bundle_with_a_warning(
    publish: Publisher, hook: Run, tmp_path: Path
) -> None:
    publish(status="partial", reason="tunes again at each start", code="retunes")

    failed = hook("--on-miss", "fail")
    cold = hook("--env-file", tmp_path / "env", "--on-miss", "eager")

    assert failed.returncode == 3
    assert "minilm/v1: tunes again at each start" in failed.stderr
    assert cold.returncode == 0
    assert "starting from its bundle" in cold.stderr
    assert "TORCHINDUCTOR_CACHE_DIR" in sourced(tmp_path / "env")
    assert "TORCHDYNAMO_DISABLE" not in sourced(tmp_path / "env")


def test_one_unknown_model_does_not_hold_back_the_other(
    publish: Publisher, prewarm_process: Run, tmp_path: Path
) -> None:
    publish()

    done = prewarm_process(
        "hook", "minilm/v1", "nope", "--manifest", publish.cache_dir, "--into", tmp_path / "D",
        "--env-file", tmp_path / "env",
    )  # fmt: skip

    assert done.returncode == 0
    assert "nope: no manifest names this model" in done.stderr
    assert "TORCHINDUCTOR_CACHE_DIR" in sourced(tmp_path / "env")


def test_with_several_models_the_first_miss_is_the_failure(
    publish: Publisher, hook: Run, prewarm_process: Run, tmp_path: Path
) -> None:
    publish("warm")
    publish("partial", status="partial", reason="tunes again at each start", code="retunes")
    publish("other", facts={"torch": "2.0.0"})
    how = ("--manifest", publish.cache_dir, "--into", tmp_path / "D", "--on-miss", "fail")

    def failed(*models: str) -> tuple[int, str]:
        done = prewarm_process("hook", *models, *how)
        [line] = done.stderr.splitlines()
        return done.returncode, line.removeprefix("prewarm: error: ").split(":")[0]

    assert failed("warm", "partial", "other", "nope") == (3, "partial")
    assert failed("warm", "other", "partial") == (4, "other")
    assert failed("nope", "other") == (3, "nope")
    assert not (tmp_path / "D").exists()


def test_an_eager_start_of_one_of_two_models_reads_the_same_everywhere(
    publish: Publisher, prewarm_process: Run, tmp_path: Path
) -> None:
    publish()

    prewarm_process(
        "hook", "minilm/v1", "nope", "--manifest", publish.cache_dir, "--into", tmp_path / "D",
        "--env-file", tmp_path / "env", "--on-miss", "eager",
    )  # fmt: skip

    for env_file in (tmp_path / "env", tmp_path / "D" / "env"):
        assert sourced(env_file)["TORCHDYNAMO_DISABLE"] == "1"
    fixed = json.loads((tmp_path / "D" / "env.json").read_text())["variables"]
    assert fixed["TORCHDYNAMO_DISABLE"] == "1"


def test_two_models_of_one_environment_share_a_directory(
    publish: Publisher, prewarm_process: Run, tmp_path: Path
) -> None:
    publish("a", {"inductor/a/f": b"a"}, variables={"X": "1"})
    publish("b", {"inductor/b/f": b"b"}, variables={"X": "1", "Y": "2"})

    done = prewarm_process(
        "hook", "a", "b", "--manifest", publish.cache_dir, "--into", tmp_path / "D", "--json"
    )

    told = json.loads(done.stdout)
    assert told["misses"] == []
    tree = Path(told["tree"])
    assert (tree / "inductor/a/f").read_bytes() == b"a"
    assert (tree / "inductor/b/f").read_bytes() == b"b"
    assert (told["variables"]["X"], told["variables"]["Y"]) == ("1", "2")
    assert told["warnings"] == []


def test_an_entry_that_needs_the_mends_is_a_miss_without_them(
    publish: Publisher, hook: Run
) -> None:
    publish(requires=["shim"])
    assert hook("--on-miss", "fail").returncode == 0

    failed = hook("--on-miss", "fail", environ={"PREWARM_MENDS": "0"})

    assert failed.returncode == 3
    assert "PREWARM_MENDS is '0' here" in failed.stderr and "unset it" in failed.stderr


@pytest.mark.parametrize(
    ("name", "value", "cost"),
    [
        ("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1", "every start compiles everything"),
        ("TORCH_COMPILE_DISABLE", "1", "the model runs in eager mode"),
    ],
)
def test_a_variable_that_switches_caches_or_compiling_off_is_a_miss(
    publish: Publisher, hook: Run, tmp_path: Path, name: str, value: str, cost: str
) -> None:
    publish()

    failed = hook("--on-miss", "fail", "--json", environ={name: value})
    cold = hook("--env-file", tmp_path / "env", environ={name: value})

    assert failed.returncode == 3
    error = json.loads(failed.stdout)["error"]
    assert error["code"] == "fatal_variable"
    assert f"{name} is '1' here" in error["message"]
    assert cost in error["message"]
    assert cold.returncode == 0
    assert cold.stderr.endswith("unset it for this server; starting cold\n")


def test_an_eager_start_s_own_variable_does_not_hold_back_the_next_one(
    publish: Publisher, hook: Run, tmp_path: Path
) -> None:
    environ = {"TORCHDYNAMO_DISABLE": "1"}
    publish()

    again = hook("--on-miss", "eager", "--env-file", tmp_path / "env", environ=environ)

    assert (again.returncode, again.stderr) == (0, "")
    assert "TORCHDYNAMO_DISABLE" not in sourced(tmp_path / "env")
    assert hook("--on-miss", "fail", environ=environ).returncode == 3


def test_another_cache_directory_is_no_miss(publish: Publisher, hook: Run) -> None:
    publish()

    done = hook("--on-miss", "fail", environ={"TORCHINDUCTOR_CACHE_DIR": "/tmp/mine"})

    assert (done.returncode, done.stderr) == (0, "")


def declared(publish: Publisher, registry: Path) -> None:
    """Publish what was built from a registry with one declared model."""
    from prewarm.registry.declaration_file import read_declaration
    from prewarm.registry.fingerprint import checkpoint_at, take_fingerprint

    file = registry / "minilm" / "prewarm.toml"
    (registry / "minilm" / "v1").mkdir(parents=True)
    (registry / "minilm" / "v1" / "w.bin").write_bytes(b"w")
    file.write_text(
        '[model]\nloader = "python"\nfactory = "a:b"\ndtype = "float32"\ndevice = "cpu"\n'
        '[compile]\ndynamic = false\n[[shapes]]\nname = "a"\n'
        'inputs.x = { dtype = "int64", shape = [1, 2], high = 3 }\n'
    )
    fingerprint = take_fingerprint(
        checkpoint_at(registry / "minilm" / "v1", root=registry),
        root=registry,
        file=file,
        source_directories=(),
    )
    proof = {
        "declared": read_declaration(file).recorded(),
        "source_files": fingerprint.to_dict(),
    }
    publish(proof=json.loads(json.dumps(proof)))


def test_a_declaration_that_changed_is_named_and_told_by_how_the_server_starts(
    publish: Publisher, hook: Run, tmp_path: Path
) -> None:
    registry, env_file = tmp_path / "registry", tmp_path / "env"
    declared(publish, registry)
    how = ("--registry", registry, "--env-file", env_file)
    assert hook("--on-miss", "fail", *how).returncode == 0
    file = registry / "minilm" / "prewarm.toml"
    file.write_text(file.read_text().replace('"float32"', '"float16"'))
    said = "[model] dtype is float16 in prewarm.toml now, the bundle was built with float32"

    failed = hook("--on-miss", "fail", "--json", *how)
    cold = hook(*how)
    cold_variables = sourced(env_file)
    eager = hook("--on-miss", "eager", *how)

    error = json.loads(failed.stdout)["error"]
    assert (failed.returncode, error["code"]) == (3, "declaration_changed")
    assert said in error["message"]
    assert said in cold.stderr
    assert cold.stderr.endswith("; starting from its bundle\n")
    assert "TORCHINDUCTOR_CACHE_DIR" in cold_variables
    assert eager.stderr.endswith("; starting without compiling\n")
    assert sourced(env_file)["TORCHDYNAMO_DISABLE"] == "1"


def test_a_registry_that_is_not_here_changes_nothing(
    publish: Publisher, hook: Run, tmp_path: Path
) -> None:
    declared(publish, tmp_path / "registry")
    (tmp_path / "registry" / "minilm" / "prewarm.toml").write_text("[model")
    (tmp_path / "weights" / "minilm" / "v1").mkdir(parents=True)

    for place in ("nowhere", "weights"):
        assert hook("--on-miss", "fail", "--registry", tmp_path / place).returncode == 0
    assert hook("--on-miss", "fail", "--registry", tmp_path / "registry").returncode == 3


def test_an_unchanged_registry_is_looked_at_without_pydantic(
    publish: Publisher, tmp_path: Path
) -> None:
    declared(publish, tmp_path / "registry")
    code = (
        "import sys; from prewarm.cli.main import main; code = main(sys.argv[1:]);"
        "assert 'prewarm.registry.fingerprint' in sys.modules;"
        "sys.exit(code or str({'pydantic'} & set(sys.modules) or 'none'))"
    )
    arguments = (
        "hook", "minilm/v1", "--manifest", publish.cache_dir, "--into", tmp_path / "D",
        "--registry", tmp_path / "registry", "--on-miss", "fail",
    )  # fmt: skip

    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == "none\n"


def test_a_name_that_no_path_can_have_is_an_unknown_model(publish: Publisher, hook: Run) -> None:
    publish()

    done = hook("--on-miss", "fail", model="x" * 5000)

    assert done.returncode == 3
    assert "no manifest names this model" in done.stderr


def test_a_path_that_nothing_published_fits_is_told(
    publish: Publisher, hook: Run, tmp_path: Path
) -> None:
    publish()
    (tmp_path / "model").mkdir()

    done = hook("--on-miss", "fail", model=str(tmp_path / "model"))

    assert done.returncode == 3
    assert "no published checkpoint has this content" in done.stderr


def test_an_into_that_python_would_read_as_two_paths_is_a_cold_start(
    publish: Publisher, prewarm_process: Run, tmp_path: Path
) -> None:
    publish()

    done = prewarm_process(
        "hook", "minilm/v1", "--manifest", publish.cache_dir, "--into", tmp_path / "a:b",
        "--env-file", tmp_path / "env",
    )  # fmt: skip

    assert done.returncode == 0
    [line] = done.stderr.splitlines()
    assert "choose another directory with --into; starting cold" in line
    assert not [line for line in (tmp_path / "env").read_text().splitlines() if line[0] != "#"]


def test_a_damaged_file_is_put_back_and_told(publish: Publisher, hook: Run, tmp_path: Path) -> None:
    info = publish()
    hook()
    damaged = tmp_path / "D" / info.sha256[:32] / "inductor/aa/kernel.so"
    damaged.write_bytes(b"\x7fELF")

    done = hook("--env-file", tmp_path / "env", "--on-miss", "fail")

    assert done.returncode == 0
    assert "1 files were put back" in done.stdout
    assert damaged.read_bytes() == FILES["inductor/aa/kernel.so"]


def test_a_missing_compiler_is_told_before_the_server_starts(publish: Publisher, hook: Run) -> None:
    publish()

    done = hook("--on-miss", "fail", environ={"CXX": "no-such-compiler"})

    assert done.returncode == 4
    assert "no C++ compiler is here" in done.stderr


def test_another_interpreter_is_asked_and_a_broken_one_told(publish: Publisher, hook: Run) -> None:
    publish()

    same = hook("--on-miss", "fail", "--interpreter", sys.executable)
    broken = hook("--on-miss", "fail", "--interpreter", "/no/such/python")
    unclosed = hook("--interpreter", "'")

    assert same.returncode == 0, same.stderr
    assert broken.returncode == 1
    assert "/no/such/python does not run" in broken.stderr
    assert unclosed.returncode == 2


def test_a_read_only_cache_directory_is_enough(publish: Publisher, hook: Run) -> None:
    publish()
    for path in (*publish.cache_dir.rglob("*"), publish.cache_dir):
        path.chmod(0o555 if path.is_dir() else 0o444)

    done = hook("--on-miss", "fail")

    for path in publish.cache_dir.rglob("*"):
        path.chmod(0o755)
    assert done.returncode == 0, done.stderr


def test_two_hooks_at_once_leave_one_right_tree(
    publish: Publisher, tmp_path: Path, hook: Run
) -> None:
    info = publish(files={f"inductor/{n:02x}/f": bytes(2000) for n in range(200)})
    argv = [
        sys.executable, "-m", "prewarm.cli", "hook", "minilm/v1", "--manifest",
        str(publish.cache_dir), "--into", str(tmp_path / "D"), "--on-miss", "fail",
    ]  # fmt: skip
    hooks = [subprocess.Popen([*argv, "--env-file", str(tmp_path / f"e{n}")]) for n in range(4)]

    assert [process.wait() for process in hooks] == [0, 0, 0, 0]
    names = {path.name for path in (tmp_path / "D").iterdir()}
    known = {".lock", ".prewarm", "env", "env.json", "reports", "shim"}
    assert names == known | {info.sha256[:32]}
    assert (tmp_path / "e0").read_bytes() == (tmp_path / "e3").read_bytes()
    assert json.loads(hook("--json").stdout)["put_back"] == 0


def test_an_into_in_which_torch_could_not_compile_is_a_cold_start(
    publish: Publisher, prewarm_process: Run, tmp_path: Path
) -> None:
    publish()
    into = tmp_path / "two words"
    words = ("hook", "minilm/v1", "--manifest", publish.cache_dir, "--into", into)
    done = prewarm_process(*words)
    assert done.returncode == 0
    assert "holds ' '" in done.stderr and "starting cold" in done.stderr
    assert "TORCHINDUCTOR_CACHE_DIR" not in done.stdout
    assert not into.exists()
    assert prewarm_process(*words, "--on-miss", "fail").returncode == 1


def test_an_into_that_cannot_be_written_is_a_cold_start(
    publish: Publisher, prewarm_process: Run, tmp_path: Path
) -> None:
    publish()
    (tmp_path / "file").write_bytes(b"")

    done = prewarm_process(
        "hook", "minilm/v1", "--manifest", publish.cache_dir, "--into", tmp_path / "file" / "D",
        "--env-file", tmp_path / "no" / "such" / "env",
    )  # fmt: skip

    assert done.returncode == 0
    assert all(line.startswith("prewarm: warning: ") for line in done.stderr.splitlines())
    assert "the env file is not written" in done.stderr


def test_a_broken_configuration_takes_no_service_down(
    publish: Publisher, prewarm_process: Run, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text("cach_dir = 1\n")
    arguments = ("hook", "minilm/v1", "--config", config, "--env-file", tmp_path / "env")

    cold = prewarm_process(*arguments)
    failed = prewarm_process(*arguments, "--on-miss", "fail")

    assert cold.returncode == 0
    assert "did you mean `cache_dir`?" in cold.stderr
    assert (tmp_path / "env").read_text().startswith("# prewarm: minilm/v1: nothing to set")
    assert failed.returncode == 1


def test_a_manifest_from_nowhere_is_wrong_and_one_over_http_needs_a_key(
    prewarm_process: Run,
) -> None:
    def told(manifest: str) -> tuple[int, str]:
        done = prewarm_process("hook", "m", "--manifest", manifest, "--on-miss", "fail")
        return done.returncode, done.stderr

    assert told("ftp://b/v1")[0] == 1
    assert "expected a directory, unix:PATH, http://HOST:PORT or https://HOST" in told("ftp://b")[1]
    code, line = told("https://b/v1")
    assert (code, "add --trust ed25519:KEY" in line) == (5, True)


def test_a_path_is_matched_by_content_then_by_architecture(
    publish: Publisher, hook: Run, tmp_path: Path
) -> None:
    from prewarm.registry.architecture import architecture_digest
    from prewarm.registry.checkpoint import list_checkpoint
    from prewarm.registry.content import content_digest
    from prewarm.registry.declaration_file import read_declaration

    checkpoint = tmp_path / "somewhere" / "else"
    checkpoint.mkdir(parents=True)
    (checkpoint / "config.json").write_text('{"model_type": "bert", "hidden_size": 4}')
    (checkpoint / "prewarm.toml").write_text(
        '[model]\nloader = "transformers"\nclass = "AutoModel"\ndtype = "float32"\ndevice = "cpu"\n'
        '[compile]\ndynamic = false\n[[shapes]]\nname = "a"\n'
        'inputs.x = { dtype = "int64", shape = [1, 2], high = 3 }\n'
    )
    found = list_checkpoint(checkpoint, name="else", root=Path("/"))
    declaration = read_declaration(checkpoint / "prewarm.toml")
    publish(checkpoint=content_digest(found), architecture=architecture_digest(found, declaration))

    same = hook("--on-miss", "fail", model=str(checkpoint))
    (checkpoint / "extra.bin").write_bytes(b"tokenizer")
    other_failed = hook("--on-miss", "fail", model=str(checkpoint))
    other = hook("--env-file", tmp_path / "env", model=str(checkpoint))

    assert same.returncode == 0, same.stderr
    assert other_failed.returncode == 3
    assert "same architecture, not proven for these weights" in other_failed.stderr
    assert other.returncode == 0
    assert "TORCHINDUCTOR_CACHE_DIR" in sourced(tmp_path / "env")


def test_a_hook_with_nothing_to_do_is_fast(publish: Publisher, hook: Run, tmp_path: Path) -> None:
    publish(files={f"inductor/{n % 100:02x}/{n}": b"x" * n for n in range(2500)})
    hook("--env-file", tmp_path / "env")

    taken = []
    for _ in range(5):
        start = time.perf_counter()
        hook("--env-file", tmp_path / "env", "--on-miss", "fail")
        taken.append(time.perf_counter() - start)

    # The bound is 0.25 s, which tests/bench measures; a busy machine needs some air here.
    assert min(taken) < 0.5


def test_a_hook_with_nothing_to_do_unpacks_and_imports_nothing(
    publish: Publisher, hook: Run, tmp_path: Path
) -> None:
    publish()
    hook()
    code = (
        "import sys; from prewarm.cli.main import main; code = main(sys.argv[1:]);"
        "slow = {'zstandard', 'tarfile', 'pydantic', 'rich', 'cryptography', 'sqlite_utils',"
        " 'torch', 'prewarm.registry', 'prewarm.store.bundle'};"
        "sys.exit(code or str(slow & set(sys.modules) or 'none'))"
    )
    arguments = ("hook", "minilm/v1", "--manifest", publish.cache_dir, "--into", tmp_path / "D")

    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments), "--on-miss", "fail"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == "none\n"


@pytest.mark.skipif(os.getuid() != 0, reason="root makes what another user cannot enter")
def test_places_that_are_closed_to_the_user_are_one_line_each(
    publish: Publisher, open_directory: Path
) -> None:
    publish()
    shutil.copytree(publish.cache_dir, open_directory / "cache")
    (open_directory / "closed").mkdir(mode=0o700)

    def told(code: int, **places: str) -> str:
        done = as_nobody(
            "hook", "minilm/v1", "--on-miss", "fail",
            "--manifest", open_directory / places.get("cache", "cache"),
            "--into", open_directory / places.get("into", "D"),
        )  # fmt: skip
        assert done[0] == code, done
        [line] = done[1].splitlines()
        assert "internal error" not in line
        return line

    assert "closed/c: cannot be read (Permission denied)" in told(5, cache="closed/c")
    for bundle in (open_directory / "cache").rglob("*.zst"):
        bundle.chmod(0o600)
    (open_directory / "open").mkdir()
    (open_directory / "open").chmod(0o777)
    line = told(3, into="open")
    assert "cannot be read (Permission denied); give user 65534 read access to it" in line
    assert "cannot be written as user 65534 (Permission denied)" in told(1, into="closed/D")
    assert "cannot be written as user 65534 (Permission denied)" in told(1, into="new")


def as_nobody(*arguments: object) -> tuple[int, str]:
    """Run a command in a fork, since another user may not reach this Python's files."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            sys.stderr = os.fdopen(writing, "w")
            import prewarm.cli.hook

            assert prewarm.cli.hook
            os.seteuid(65534)
            from prewarm.cli.main import main

            code = main([str(argument) for argument in arguments])
            sys.stderr.flush()
            os._exit(code)
        finally:
            os._exit(99)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


def test_each_start_marks_its_bundle_as_used_where_it_may(
    publish: Publisher, hook: Run, tmp_path: Path
) -> None:
    info = publish()
    assert hook("--on-miss", "fail").returncode == 0
    leases = leases_directory(publish.cache_dir)
    assert not leases.exists(), "the builder makes it, or nobody"
    leases.mkdir()
    assert hook("--on-miss", "fail").returncode == 0
    assert [path.name for path in leases.iterdir()] == [f"{info.sha256}.used"]
