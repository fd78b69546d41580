from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from prewarm.errors import NotWritable, PrewarmError, StoreCorrupt
from prewarm.store.collect_plan import Use
from prewarm.store.database import Database
from prewarm.store.status import Status
from prewarm.store.view import StatusRow, read_digests, read_paths, read_status, read_uses

At = Callable[[float], str]
Unprivileged = Callable[[], AbstractContextManager[None]]
Record = Callable[..., dict[str, object]]


def test_rows_hold_what_the_database_holds(
    database: Database, state_dir: Path, at: At, record: Record
) -> None:
    database.see_checkpoint(
        "m/v1", "/m/v1", digest="d", architecture="a", aliases=["m/latest"], at=at(0)
    )
    entry = database.put_entry("m/v1", "e", at=at(0))
    database.move(entry.id, Status.PROVING, at=at(1), build_key="k", log="/l")
    database.move(entry.id, Status.WARM, at=at(2), record=record())
    database.put_entry("a", "e", at=at(3), status=Status.FAILED, reason="why", code="c", attempts=2)
    one, two = read_status(state_dir)
    assert one == StatusRow(
        model="a", aliases=(), environment_id="e", status="failed", reason="why", code="c",
        attempts=2, next_try_at=None, build_key=None, record_json=None, log=None,
        updated_at=at(3),
    )  # fmt: skip
    assert one.record is None
    assert (two.model, two.aliases, two.status, two.log) == ("m/v1", ("m/latest",), "warm", "/l")
    assert two.record == record()


def test_a_reader_sees_what_a_writer_has_committed(
    database: Database, state_dir: Path, at: At
) -> None:
    with database.transaction():
        database.put_entry("a", "e", at=at(0))
        assert read_status(state_dir) == ()
    assert len(read_status(state_dir)) == 1


def test_no_state_is_told_with_the_next_step(state_dir: Path) -> None:
    with pytest.raises(PrewarmError, match=rf"no state at {state_dir}; run `prewarm scan` first"):
        read_status(state_dir)
    assert not state_dir.exists()


def test_what_is_no_database_is_told(state_dir: Path) -> None:
    state_dir.mkdir()
    (state_dir / "prewarm.db").write_bytes(b"no database" * 1000)
    with pytest.raises(StoreCorrupt, match="move it away and run `prewarm scan`"):
        read_status(state_dir)


def test_an_empty_file_is_told(state_dir: Path) -> None:
    state_dir.mkdir()
    (state_dir / "prewarm.db").touch()
    with pytest.raises(PrewarmError, match="run `prewarm scan` once"):
        read_status(state_dir)


def test_newer_schema_is_told(database: Database, state_dir: Path) -> None:
    database.execute("PRAGMA user_version = 99")
    with pytest.raises(PrewarmError, match=r"schema 99.*upgrade this prewarm"):
        read_status(state_dir)


@pytest.mark.parametrize("writer_is_there", [True, False])
def test_a_user_who_may_not_write_can_read(
    open_path: Path, unprivileged: Unprivileged, at: At, writer_is_there: bool
) -> None:
    database = Database(open_path / "prewarm.db")
    database.put_entry("a", "e", at=at(0))
    if not writer_is_there:
        database.close()
    open_path.chmod(0o555)
    try:
        with unprivileged():
            assert [row.model for row in read_status(open_path)] == ["a"]
    finally:
        open_path.chmod(0o755)
        database.close()


def test_a_user_who_may_not_read_is_told(
    open_path: Path, unprivileged: Unprivileged, at: At
) -> None:
    Database(open_path / "prewarm.db").close()
    (open_path / "prewarm.db").chmod(0o600)
    with unprivileged(), pytest.raises(NotWritable, match="give this user read access"):
        read_status(open_path)
    open_path.chmod(0o700)
    with unprivileged(), pytest.raises(NotWritable, match="give this user read access"):
        read_status(open_path)


def test_a_path_with_odd_characters_is_read(tmp_path: Path, at: At) -> None:
    state_dir = tmp_path / "a ?mode=rw#%41&ü"
    with Database(state_dir / "prewarm.db") as database:
        database.put_entry("a", "e", at=at(0))
    assert len(read_status(state_dir)) == 1


def test_a_thousand_entries_take_under_50_ms(
    database: Database, state_dir: Path, at: At, record: Record
) -> None:
    with database.transaction():
        for number in range(1000):
            database.put_entry(
                f"m{number}", "e", at=at(0), status=Status.WARM, record=record(calls=8)
            )
    best_s = 1.0
    for _ in range(5):
        started_s = time.perf_counter()
        rows = read_status(state_dir)
        best_s = min(best_s, time.perf_counter() - started_s)
    assert len(rows) == 1000
    assert best_s < 0.05


@pytest.mark.parametrize("module", ["view", "manifest", "whole_file", "status", "collect"])
def test_what_starts_often_imports_nothing_slow(module: str) -> None:
    program = (
        f"import sys, prewarm.store.{module}; "
        "print(*({'sqlite_utils', 'pydantic', 'cryptography', 'rich', 'click'} & set(sys.modules)))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == ""


def test_known_digests_are_read_with_what_they_hold_for(
    database: Database, state_dir: Path
) -> None:
    stamp = {"size_bytes": 5, "mtime_ns": 1, "ctime_ns": 2, "inode": 3}
    database.put_file_digest("/m/one", digest="d1", **stamp)
    database.put_file_digest("/m/two", digest="d2", **stamp)

    found = read_digests(state_dir, [Path("/m/one"), Path("/m/none")])

    assert found == {("/m/one", 5, 1, 2, 3): "d1"}


def test_the_use_of_a_bundle_is_its_last_proof_or_reported_start(
    database: Database, state_dir: Path, at: At, record: Record
) -> None:
    for model, second in (("a", 10.0), ("b", 30.0)):
        proof = {"proof": {"proved_at": at(second)}}
        database.put_entry(
            model, "e", at=at(0), status=Status.WARM, record=record(**proof), bundle_sha256="1"
        )
    database.put_entry("gone", "e", at=at(0), status=Status.RETIRED, reason="r", bundle_sha256="2")
    assert read_uses(state_dir) == {"1": Use(("a", "b"), 1_800_000_030.0)}
    database.add_report(
        "a", "e", bundle_sha256="1", at=at(50), uid=None, first_answer_s=None, compiled=None,
        report={},
    )  # fmt: skip
    assert read_uses(state_dir)["1"].used_s == 1_800_000_050.0


def test_work_holds_its_bundle_and_those_that_it_may_start_from(
    database: Database, state_dir: Path, at: At
) -> None:
    database.see_checkpoint("m", "/m", digest="d", architecture="arch", at=at(0))
    entry = database.put_entry("m", "e", at=at(0), bundle_sha256="own")
    for sha256, architecture in (("near", "arch"), ("far", "other")):
        database.add_bundle(
            sha256, build_key="k", architecture=architecture, environment_id="e", size_bytes=1,
            unpacked_bytes=1, files=1, record=None, at=at(0),
        )  # fmt: skip
    assert read_uses(state_dir) == {}
    database.move(entry.id, Status.PROVING, at=at(1))
    uses = read_uses(state_dir)
    assert {name for name, use in uses.items() if use.is_worked_with} == {"own", "near"}


def test_paths_of_known_digests_are_listed(database: Database, state_dir: Path) -> None:
    database.put_file_digest("/a", size_bytes=1, mtime_ns=1, ctime_ns=1, inode=1, digest="d")
    assert read_paths(state_dir) == ("/a",)
    database.forget_files(["/a", "/b"])
    assert read_paths(state_dir) == ()
