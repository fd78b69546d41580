"""A private directory as a whole: what the hook put there, what was added, what its starts tell."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prewarm.deploy.drift import Drift, read_drift
from prewarm.errors import ConfigError

FRAME = {"name": "forward", "of": "Block", "file": "blocks.py", "line": 3}
GRAPH: dict[str, Any] = {
    "frame": FRAME, "grad": "inference", "autocast": "", "mode": "default", "dynamic": "false",
    "inputs": [], "parameters": {}, "config": {}, "precision": "highest", "deterministic": False,
    "threads": 2,
}  # fmt: skip
HIT = {"event": "aot_lookup", "state": "hit", "graph": 1}
MISSED = [
    {"event": "aot_lookup", "state": "miss", "graph": 1},
    {"event": "fx_lookup", "state": "miss", "graph": 1},
    {"event": "graph_compiled", "graph": 1},
    {"event": "cpp_compiled"},
]

Reported = Callable[..., str]


@pytest.fixture
def filled(tmp_path: Path, publish: Any, prewarm_process: Any) -> Path:
    """A directory that a real hook filled."""
    publish(proof={"graphs": [GRAPH | {"outcome": "hit"}], "declared": {"shapes": []}})
    into = tmp_path / "D"
    words = ("hook", "minilm/v1", "--manifest", publish.cache_dir, "--into", into)
    done = prewarm_process(*words, "--env-file", tmp_path / "env", "--on-miss", "fail")
    assert done.returncode == 0, done.stderr
    return into


@pytest.fixture
def reported(filled: Path) -> Reported:
    """Write what one process of a start would have."""

    def report(
        *events: dict[str, Any], at_ns: int | None = None, pid: int = 7, **graph: Any
    ) -> str:
        at_ns = at_ns or time.time_ns()
        directory = filled / "reports" / f"{at_ns}-{pid}"
        directory.mkdir(exist_ok=True)
        told = [
            {"event": "start", "uid": 0, "python": "3.11.7"},
            {"event": "graph", "graph": 1, "compile_id": "0/0", **GRAPH, **graph},
            *events,
            {"event": "graph_done", "graph": 1, "seconds": 8.5, "failed": None},
            {"event": "frame", "seconds": 9.0, "again": False},
            {"event": "ran", "device_index": None},
            {"event": "files", "changed": [], "count": 0},
        ]
        lines = [json.dumps({"pid": pid, "at_s": at_ns / 1e9, **event}) for event in told]
        (directory / f"{pid}.jsonl").write_text("\n".join(lines))
        return directory.name

    return report


def only_start(drift: Drift) -> dict[str, Any]:
    (start,) = drift.to_dict()["starts"]
    return dict(start)


def test_a_directory_as_filled_has_no_drift_and_no_start_to_tell(filled: Path) -> None:
    drift = read_drift(filled)
    assert drift.models == ("minilm/v1",)
    assert (drift.compiled, drift.starts, drift.earlier) == (False, (), 0)
    assert drift.added is not None
    assert drift.added.files == 0


def test_a_warm_start_has_no_drift(filled: Path, reported: Reported) -> None:
    name = reported(HIT)
    drift = read_drift(filled)
    start = only_start(drift)
    assert not drift.compiled
    assert start["start"] == name
    assert (start["graphs_found"], start["graphs"], start["counts"]) == (1, [], {})
    assert (start["first_run_s"], start["cannot_tell"]) == (9.0, [])


def test_what_a_start_compiled_is_held_against_the_proof(filled: Path, reported: Reported) -> None:
    reported(*MISSED, grad="grad")
    drift = read_drift(filled)
    start = only_start(drift)
    assert drift.compiled
    assert start["compiled"] is True
    assert start["seconds"] == 8.5
    assert start["counts"] == {
        "graphs_compiled": 1, "fx_misses": 1, "aot_misses": 1, "cpp_compiled": 1,
    }  # fmt: skip
    (graph,) = start["graphs"]
    assert (graph["outcome"], graph["frame"]) == ("miss", FRAME)
    (difference,) = graph["differences"]
    assert (difference["fact"], difference["present"]) == ("[model] grad", "grad")
    assert difference["sentence"] == "[model] grad: grad in this start, inference in the proof"


def test_kernels_without_a_graph_are_drift_too(filled: Path, reported: Reported) -> None:
    reported(HIT, {"event": "cpp_compiled"})
    drift = read_drift(filled)
    assert drift.compiled
    assert only_start(drift)["counts"] == {"cpp_compiled": 1}


def test_what_could_not_be_watched_is_said_and_is_no_drift(
    filled: Path, reported: Reported
) -> None:
    gone = {
        "event": "point", "module": "m", "attribute": "a", "field": "fx_misses", "there": False,
    }  # fmt: skip
    reported(gone, HIT)
    drift = read_drift(filled)
    assert not drift.compiled
    assert only_start(drift)["cannot_tell"] == ["fx_misses"]


def test_files_that_were_left_behind_are_drift_without_a_report(filled: Path) -> None:
    tree = read_drift(filled).tree
    (tree / "inductor" / "fxgraph" / "new").write_bytes(b"12")
    drift = read_drift(filled)
    assert drift.compiled
    assert drift.to_dict()["added"] == {
        "files": 1, "size_bytes": 2, "kinds": {"graphs": 1}, "changed": 0,
    }  # fmt: skip


def test_a_lost_listing_leaves_the_added_files_unknown(filled: Path) -> None:
    (read_drift(filled).tree / "listing.json").unlink()
    assert read_drift(filled).added is None


def test_starts_from_before_the_present_bundles_are_counted_only(
    filled: Path, reported: Reported
) -> None:
    reported(*MISSED, at_ns=1_000_000_000)
    reported(HIT)
    drift = read_drift(filled)
    assert (drift.compiled, drift.earlier, len(drift.starts)) == (False, 1, 1)


def test_starts_stand_in_the_order_of_time_and_one_without_an_event_is_none(
    filled: Path, reported: Reported
) -> None:
    now = time.time_ns() + 10**9
    later = reported(HIT, at_ns=now + 10)
    first = reported(HIT, at_ns=now)
    (filled / "reports" / f"{now + 5}-1").mkdir()
    (filled / "reports" / "notes").mkdir()
    assert [start.start.name for start in read_drift(filled).starts] == [first, later]


def test_a_directory_that_no_hook_filled_is_told(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "absent"):
        with pytest.raises(ConfigError, match="no hook has filled") as told:
            read_drift(directory)
        assert told.value.code == "not_filled"


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 2}', '{"format": 1}'])
def test_an_env_json_that_is_none_is_told(filled: Path, text: str) -> None:
    (filled / "env.json").write_text(text)
    with pytest.raises(ConfigError, match="cannot be used") as told:
        read_drift(filled)
    assert told.value.code == "not_filled"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_reports_that_cannot_be_read_are_told(filled: Path, reported: Reported) -> None:
    (filled / "reports" / reported(HIT) / "7.jsonl").chmod(0)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_drift(filled)
