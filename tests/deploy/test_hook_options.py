"""The hook's options for other places: keys, given facts, several models in one process."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from prewarm.store.signing import load_or_create_key

from .conftest import Publisher

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def hook(publish: Publisher, tmp_path: Path, prewarm_process: Run) -> Run:
    def run(*arguments: object, **how: object) -> subprocess.CompletedProcess[str]:
        return prewarm_process(
            "hook", "--manifest", publish.cache_dir, "--into", tmp_path / "D", *arguments, **how
        )

    return run


def test_models_with_conflicting_variables_are_refused_by_name(
    publish: Publisher, hook: Run
) -> None:
    publish("a", {"inductor/a/f": b"a"}, variables={"OMP_NUM_THREADS": "2", "X": "1"})
    publish("b", {"inductor/b/f": b"b"}, variables={"OMP_NUM_THREADS": "2", "X": "2"})
    line = "b: was proven with X=2, a with 1; give each its own --into and process"
    facts = ("--for", "device=cpu")

    failed = hook("a", "b", "--on-miss", "fail", *facts)
    told = json.loads(hook("a", "b", "--json", *facts).stdout)

    assert (failed.returncode, failed.stderr) == (3, f"prewarm: error: {line}\n")
    assert [one["model"] for one in told["models"]] == ["a"]
    assert told["misses"] == [{"model": "b", "code": "variables_conflict", "message": line}]
    assert told["variables"]["X"] == "1"


@pytest.mark.parametrize("how", ["flag", "variable", "file", "configuration"])
def test_a_key_makes_a_directory_of_others_readable(
    publish: Publisher, hook: Run, tmp_path: Path, how: str
) -> None:
    publish()
    publish.cache_dir.chmod(0o777)
    key = load_or_create_key(tmp_path / "state").public
    other = load_or_create_key(tmp_path / "other").public
    config = tmp_path / "config.toml"
    config.write_text(f'trust = ["state/signing.pub", "{other}"]\n')
    arguments, environ = {
        "flag": (("--trust", other, "--trust", key), {}),
        "variable": ((), {"PREWARM_TRUST": f"{other} {key}"}),
        "file": (("--trust", str(tmp_path / "state" / "signing.pub")), {}),
        "configuration": (("--config", str(config)), {}),
    }[how]

    done = hook("minilm/v1", "--on-miss", "fail", *arguments, environ=environ)

    assert (done.returncode, done.stderr) == (0, "")


def test_without_its_key_it_is_refused_with_the_command(publish: Publisher, hook: Run) -> None:
    publish()
    publish.cache_dir.chmod(0o777)

    done = hook("minilm/v1", "--on-miss", "fail")

    assert done.returncode == 5
    [line] = done.stderr.splitlines()
    assert f"run: chmod go-w {publish.cache_dir} (or name" in line


def test_the_manifest_may_be_named_by_a_variable(
    publish: Publisher, prewarm_process: Run, tmp_path: Path
) -> None:
    publish()

    done = prewarm_process(
        "hook", "minilm/v1", "--into", tmp_path / "D", "--on-miss", "fail",
        environ={"PREWARM_MANIFEST": str(publish.cache_dir)},
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")


# -- given facts


def test_given_facts_stand_for_a_machine_that_is_not_here(
    publish: Publisher, hook: Run, tmp_path: Path
) -> None:
    publish(facts={"device": "NVIDIA H200", "capability": "9.0"})
    publish("minilm/v1", {"inductor/b/f": b"b"}, facts={"device": "NVIDIA A100"})

    plain = hook("minilm/v1", "--on-miss", "fail")
    # What switches caches off here does not reach the server.
    given = hook(
        "minilm/v1", "--on-miss", "fail", "--for", "device=NVIDIA H200", "--for", "capability=9.0",
        environ={"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"},
    )  # fmt: skip

    assert plain.returncode in (3, 4)
    assert (given.returncode, given.stderr) == (0, "")
    env_json = json.loads((tmp_path / "D" / "env.json").read_text())
    [facts] = env_json["environments"].values()
    assert facts["device"] == "NVIDIA H200", "the shim compares the rest of them at the start"


def test_given_facts_that_are_nowhere_end_with_4(publish: Publisher, hook: Run) -> None:
    publish(facts={"device": "NVIDIA H200"})

    done = hook("minilm/v1", "--on-miss", "fail", "--for", "device=NVIDIA B200")

    assert done.returncode == 4
    [line] = done.stderr.splitlines()
    assert "device is NVIDIA H200 there" in line


@pytest.mark.parametrize("given", ["device", "=cpu", ""])
def test_a_fact_without_a_value_is_wrong_usage(publish: Publisher, hook: Run, given: str) -> None:
    publish()

    done = hook("minilm/v1", "--for", given)

    assert done.returncode == 2
    assert "expected FACT=VALUE" in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_the_directory_of_another_user_needs_its_key(
    publish: Publisher, hook: Run, tmp_path: Path
) -> None:
    publish()
    for path in (publish.cache_dir, *publish.cache_dir.rglob("*")):
        os.chown(path, 1234, 1234)

    refused = hook("minilm/v1", "--on-miss", "fail")
    trusted = hook("minilm/v1", "--on-miss", "fail", "--trust", tmp_path / "state" / "signing.pub")

    assert refused.returncode == 5
    assert "belongs to user 1234" in refused.stderr
    assert (trusted.returncode, trusted.stderr) == (0, "")
