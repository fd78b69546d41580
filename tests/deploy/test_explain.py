"""What is explained: every fact that differs once, the entry's own reason, the builder's state."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prewarm.deploy.deadline import Deadline
from prewarm.deploy.deep import compare_deep
from prewarm.deploy.explain import Explanation, Here, explain, explain_all
from prewarm.deploy.keep import Keep
from prewarm.deploy.opened_source import open_source
from prewarm.deploy.published import read_published
from prewarm.store.database import Database
from prewarm.store.status import Status

from .conftest import Publisher

AT = "2027-01-15T08:00:00.000Z"

Explain = Callable[..., Explanation]


@pytest.fixture
def told(publish: Publisher) -> Explain:
    def run(model: str = "minilm/v1", **how: Any) -> Explanation:
        ask = how.pop("ask_deep", None)
        here = Here(**{"interpreter": (), "environ": {}, **how})
        keep = Keep(publish.root / "keep", lasting=True)
        source = open_source(publish.cache_dir, keep, Deadline(20))
        return explain(model, source, here, ask_deep=ask)

    return run


def facts(explanation: Explanation) -> list[str]:
    return [one.fact for one in explanation.differences]


def test_what_is_equal_starts_warm(publish: Publisher, told: Explain) -> None:
    publish(proof={"proved_at": AT})

    found = told()

    assert (found.warm, found.differences, found.code) == (True, (), None)
    assert found.equal >= 16
    assert found.sentence() == (
        f"minilm/v1: would start warm here ({found.equal} facts equal, proven {AT})"
    )


@pytest.mark.parametrize(
    ("recorded", "named", "implied"),
    [
        ({"torch": "2.0", "torch_git": "x", "cuda": "1", "build_paths": "y"}, "torch",
         ["torch_git", "cuda", "build_paths"]),
        ({"python_abi": "a", "torch": None, "build_paths": "y"}, "python_abi",
         ["torch", "build_paths"]),
        ({"cxx": "clang++", "cxx_version": "c", "variables": '{"CXX": "clang++"}'}, "cxx",
         ["cxx_version", "CXX"]),
        ({"machine": "riscv", "cpu_isa": "v", "python_abi": "z"}, "machine",
         ["cpu_isa", "python_abi"]),
        ({"build_paths": "y"}, "build_paths", []),
        ({"build_paths": "y", "python": "cpython 3.9.9"}, "python", ["build_paths"]),
        ({"build_paths": "y", "python": "cpython 3.9.9", "python_abi": "a"}, "python_abi",
         ["build_paths"]),
        ({"variables": '{"TORCHINDUCTOR_X": "1"}'}, "TORCHINDUCTOR_X", []),
    ],
)  # fmt: skip
def test_one_change_is_one_fact_and_what_follows_from_it_is_apart(
    publish: Publisher, told: Explain, recorded: dict[str, str | None], named: str,
    implied: list[str],
) -> None:  # fmt: skip
    publish(facts=recorded)

    found = told()

    assert (found.warm, facts(found), found.code) == (False, [named], "environment_differs")
    assert [one.fact for one in found.implied] == implied
    assert named.replace("_", " ").split()[0] in found.sentence()


def test_another_patch_version_of_python_at_the_same_path_is_no_difference(
    publish: Publisher, told: Explain
) -> None:
    publish(facts={"python": "cpython 3.9.9"})

    assert told().warm


def test_a_fatal_variable_is_told_once(publish: Publisher, told: Explain, monkeypatch: Any) -> None:
    publish()
    monkeypatch.setenv("TORCHINDUCTOR_FX_GRAPH_CACHE", "0")

    found = told(environ=os.environ)

    assert (facts(found), found.code) == (["TORCHINDUCTOR_FX_GRAPH_CACHE"], "fatal_variable")


def test_a_partial_entry_gives_its_own_reason(publish: Publisher, told: Explain) -> None:
    publish(status="partial", reason="tunes again at each start", code="retuned")

    found = told()

    assert (found.warm, found.reason, found.code) == (False, "tunes again at each start", "retuned")


def test_the_nearest_of_several_environments_is_told(publish: Publisher, told: Explain) -> None:
    publish(facts={"torch": "2.0", "threads": "64", "cpu_isa": "none"})
    publish(facts={"threads": "64"})

    assert facts(told()) == ["threads"]


def test_what_the_entry_needs_and_covers_is_a_note(publish: Publisher, told: Explain) -> None:
    publish(requires=["shim"], covers="declared order")

    found = told()

    assert found.warm
    assert found.warnings == (
        "warm only with the shim",
        "proven for the declared order of the calls only",
    )


@pytest.mark.parametrize(
    ("status", "reason", "said"),
    [
        (Status.FAILED, "ValueError: no", "failed: ValueError: no"),
        (Status.QUEUED, None, "queued: it waits for the next scan"),
    ],
)
def test_what_is_not_published_is_told_by_the_builder_s_state(
    publish: Publisher, told: Explain, tmp_path: Path, status: Status, reason: str | None, said: str
) -> None:
    publish("other")
    with Database(tmp_path / "builder" / "prewarm.db") as database:
        database.see_checkpoint(
            "net/v1", tmp_path, digest=None, architecture=None, aliases=("net/latest",), at=AT
        )
        code = "raised" if reason else None
        database.put_entry("net/v1", "e", at=AT, status=status, reason=reason, code=code)

    for name in ("net/v1", "net/latest/"):
        found = told(name, state_dir=tmp_path / "builder")
        assert (found.warm, found.status, found.reason) == (False, status.value, said)


def test_an_unknown_model_is_told_with_the_nearest_name(publish: Publisher, told: Explain) -> None:
    publish()

    found = told("minilm/v9")

    assert (found.warm, found.code) == (False, "not_published")
    assert found.reason == "no manifest names this model; did you mean minilm/v1?"


def test_without_a_manifest_the_reason_is_that(publish: Publisher, told: Explain) -> None:
    publish.cache_dir.mkdir()

    assert told().code == "no_manifest"


def test_a_recorded_declaration_that_is_nowhere_here_changes_nothing(
    publish: Publisher, told: Explain, tmp_path: Path
) -> None:
    digests = {"place": "minilm/v1", "file": "prewarm.toml", "declarations": "d", "listing": "l",
               "files": 1, "size_bytes": 1, "configs": {}, "source": {}}  # fmt: skip
    publish(proof={"declared": {"key": "k"}, "source_files": digests})

    assert told(registry=tmp_path / "nowhere").warm
    assert told(registry=tmp_path).warm


def test_all_that_is_published_is_explained_by_name(publish: Publisher) -> None:
    publish("b", facts={"threads": "64"})
    publish("a")
    published = read_published(publish.cache_dir, uid=os.getuid(), warn=print)

    found = explain_all(published, Here((), {}))

    assert [(one.model, one.warm) for one in found] == [("a", True), ("b", False)]


# -- what torch itself tells


def test_torch_s_own_facts_are_compared_where_it_is_asked(
    publish: Publisher, told: Explain
) -> None:
    publish(proof={"deep": {"vec_isa": "avx512", "num_threads": "2", "system": None}})

    asked = told(ask_deep=lambda _: {"vec_isa": "avx2", "num_threads": "2", "system": "s"})
    unasked = told()

    assert (facts(asked), asked.code) == (["vec_isa"], "environment_differs")
    assert unasked.warm


def test_what_the_model_s_own_code_sets_is_no_difference() -> None:
    set_by_model = {"matmul_precision": "high", "inductor_config": "freezing=True"}
    fresh = {"matmul_precision": "highest", "inductor_config": ""}

    assert compare_deep(set_by_model, fresh, frozenset()) == ()
    found = compare_deep(fresh, set_by_model, frozenset())
    assert [one.fact for one in found] == ["matmul_precision", "inductor_config"]


def test_what_a_fact_of_the_environment_tells_is_not_told_again() -> None:
    recorded = {"num_threads": "2", "torch_source": "a", "dynamo_config": ""}
    present = {"num_threads": "4", "torch_source": "b", "dynamo_config": "x=1"}

    assert compare_deep(recorded, present, frozenset({"threads", "torch", "TORCHDYNAMO_X"})) == ()


def test_an_entry_that_needs_the_mends_is_not_warm_without_them(
    publish: Publisher, told: Explain, monkeypatch: Any
) -> None:
    publish(requires=["shim"])
    assert told().warm
    monkeypatch.setenv("PREWARM_MENDS", "0")
    found = told(environ=os.environ)
    assert (facts(found), found.code, found.warm) == (["PREWARM_MENDS"], "fatal_variable", False)


def test_switched_off_mends_are_nothing_to_an_entry_that_needs_none(
    publish: Publisher, told: Explain, monkeypatch: Any
) -> None:
    publish()
    monkeypatch.setenv("PREWARM_MENDS", "0")
    assert told(environ=os.environ).warm
