"""``prewarm explain`` as a command: its lines, its JSON, its exit codes, what it leaves out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from prewarm.store.status import Status

from ..deploy.conftest import Publisher, present_facts
from ..serve.served import Served, record

__all__ = ["present_facts"]

Result = tuple[int, str, str]
Prewarm = Callable[..., Result]


@pytest.fixture
def publish(tmp_path: Path, present_facts: dict[str, str | None]) -> Publisher:
    return Publisher(tmp_path, present_facts)


def test_a_warm_model_is_one_line(prewarm: Prewarm, publish: Publisher) -> None:
    publish(proof={"proved_at": "2027-01-15T08:00:00.000Z"})

    code, out, err = prewarm("explain", "minilm/v1", "--manifest", publish.cache_dir)

    assert (code, err) == (0, "")
    [line] = out.splitlines()
    assert line.startswith("minilm/v1: would start warm here (")
    assert "\x1b" not in out


def test_each_difference_is_a_line_with_both_values_and_the_cost(
    prewarm: Prewarm, publish: Publisher
) -> None:
    publish(facts={"torch": "2.0.0", "torch_git": "g", "threads": "64"})

    code, out, _ = prewarm("explain", "minilm/v1", "--manifest", publish.cache_dir)

    first, title, torch, threads, follows, step = out.splitlines()
    assert code == 1
    assert first == "minilm/v1: would not start warm here"
    assert title.split() == ["fact", "recorded", "here", "cost"]
    assert torch.split()[:2] == ["torch", "2.0.0"]
    assert torch.endswith("a full compile")
    assert threads.split()[:2] == ["threads", "64"]
    assert follows == "which follows from these: torch_git"
    assert step.startswith("-> make these alike")


def test_json_has_stable_fields(prewarm: Prewarm, publish: Publisher) -> None:
    publish(facts={"threads": "64"})

    code, out, _ = prewarm("explain", "minilm/v1", "--json", "--manifest", publish.cache_dir)

    told = json.loads(out)
    assert code == 1
    assert set(told) == {
        "model", "warm", "status", "reason", "code", "differences", "implied", "warnings", "equal",
        "proved_at", "environment",
    }  # fmt: skip
    [one] = told["differences"]
    assert (one["fact"], one["recorded"]) == ("threads", "64")
    assert set(one) == {"fact", "recorded", "present", "cost"}


def test_an_unknown_model_ends_with_1_and_its_neighbour(
    prewarm: Prewarm, publish: Publisher
) -> None:
    publish()

    code, out, err = prewarm("explain", "minilm/v7", "--manifest", publish.cache_dir)

    assert (code, err) == (1, "")
    assert "did you mean minilm/v1?" in out


def test_an_interpreter_that_does_not_run_is_one_line(prewarm: Prewarm, publish: Publisher) -> None:
    publish()

    code, _, err = prewarm(
        "explain", "minilm/v1", "--manifest", publish.cache_dir, "--interpreter", "/no/python"
    )

    assert code == 1
    assert err.startswith("prewarm: error: the interpreter /no/python does not run")


def test_it_imports_neither_torch_nor_pydantic(publish: Publisher, tmp_path: Path) -> None:
    publish()
    code = (
        "import sys; from prewarm.cli.main import main; code = main(sys.argv[1:]);"
        "slow = {'pydantic', 'rich', 'cryptography', 'sqlite_utils', 'torch', 'prewarm.build'};"
        "sys.exit(code or str(slow & set(sys.modules) or 'none'))"
    )
    arguments = ("explain", "minilm/v1", "--manifest", publish.cache_dir, "--registry", tmp_path)

    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True
    )

    assert done.stderr == "none\n"


def test_doctor_tells_what_is_published_and_does_not_start_warm(
    prewarm: Prewarm, publish: Publisher, tmp_path: Path
) -> None:
    publish("a")
    publish("b", facts={"threads": "64"})

    _, out, _ = prewarm(
        "doctor", "--json", "--cache-dir", publish.cache_dir, "--state-dir", tmp_path / "s"
    )

    found = [one for one in json.loads(out)["checks"] if one["check"] == "published"]
    assert found[0]["found"] == "1 of 2 entries start warm here"
    assert "threads is " in found[1]["found"]
    assert found[1]["next_step"] == "prewarm explain b"


def test_doctor_fails_for_a_variable_that_switches_caches_off(
    prewarm: Prewarm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")

    code, out, _ = prewarm(
        "doctor", "--json", "--cache-dir", tmp_path / "c", "--state-dir", tmp_path / "s"
    )

    found = [one for one in json.loads(out)["checks"] if one["check"] == "variables"]
    assert code == 1
    assert [one["level"] for one in found] == ["fail"]
    assert "every start compiles everything" in found[0]["found"]


def test_a_builder_is_asked_over_its_socket(tmp_path: Path, prewarm: Prewarm) -> None:
    with Served(tmp_path / "builder").running() as served:
        served.add_entry("minilm/v1", Status.WARM, record=record())
        served.publish()

        code, out, _ = prewarm(
            "explain", "minilm/v1", "--manifest", f"unix:{served.unix_path}", "--json"
        )

    told = json.loads(out)
    assert (code, told["status"]) == (1, "warm")
    assert told["differences"], "the environment of the served entry is not this one"
