"""``prewarm retry``: queued again by name or alias, beside whoever works."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from prewarm.build.lock import state_lock
from prewarm.store.database import Database
from prewarm.store.doorbell import Bell, Doorbell
from prewarm.store.status import Status

Prewarm = Callable[..., tuple[int, str, str]]
AT = "2027-01-15T08:00:00.000Z"


@pytest.fixture
def failed(database: Database, tmp_path: Path) -> Database:
    for model in ("a/v1", "b/v1"):
        database.put_entry(
            model, "e", at=AT, status=Status.FAILED, reason="why", code="timeout", attempts=8
        )
    database.put_entry("warm/v1", "e", at=AT, status=Status.WARM)
    database.see_checkpoint(
        "a/v1", tmp_path, digest="d", architecture="a", aliases=("a/latest",), at=AT
    )
    return database


def test_all_that_failed_is_queued_beside_a_service_at_work(
    failed: Database, prewarm: Prewarm, state_dir: Path
) -> None:
    bell = Doorbell(state_dir)
    with state_lock(state_dir, what="prewarm serve", at=AT):
        code, out, _ = prewarm("retry", "--state-dir", state_dir)
    assert bell.answer(Bell.LOOK)
    assert (code, out) == (0, "a/v1: queued\nb/v1: queued\n")
    assert [(entry.status.value, entry.attempts) for entry in failed.entries()] == [
        ("queued", 0), ("queued", 0), ("warm", 0),
    ]  # fmt: skip
    assert prewarm("retry", "--state-dir", state_dir)[1] == (
        "nothing failed or left for want of room\n"
    )
    assert not bell.answer(Bell.LOOK)


def test_a_model_is_named_by_an_alias_and_the_others_stay(
    failed: Database, prewarm: Prewarm, state_dir: Path
) -> None:
    _, out, _ = prewarm("retry", "a/latest", "warm/v1", "--state-dir", state_dir)
    assert out.splitlines() == [
        "a/v1: queued",
        "warm/v1: neither failed nor left for want of room; see `prewarm status warm/v1`",
    ]
    _, out, _ = prewarm("retry", "b/v1", "--json", "--state-dir", state_dir)
    assert json.loads(out) == {"queued": ["b/v1"]}


def test_an_unknown_model_is_told_and_nothing_is_queued(
    failed: Database, prewarm: Prewarm, state_dir: Path
) -> None:
    code, _, err = prewarm("retry", "a/v1", "nobody", "--state-dir", state_dir)
    assert code == 1
    assert "nobody: no such model; see `prewarm status`" in err
    assert {entry.status for entry in failed.entries()} == {Status.FAILED, Status.WARM}


def test_without_a_state_none_is_made(prewarm: Prewarm, state_dir: Path) -> None:
    code, _, err = prewarm("retry", "--state-dir", state_dir)
    assert (code, state_dir.exists()) == (1, False)
    assert "no state at" in err
