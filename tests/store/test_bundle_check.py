from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from prewarm.errors import NotWritable
from prewarm.store import bundle_check as module
from prewarm.store.bundle_check import Fault, bundle_fault
from prewarm.store.database import Database

Unprivileged = Callable[[], AbstractContextManager[None]]

CONTENT = b"bundle" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "bundle"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The files that were read to their end."""
    seen: list[object] = []
    read = hashlib.file_digest

    def count(file: object, name: str) -> object:
        seen.append(file)
        return read(file, name)  # type: ignore[arg-type]

    monkeypatch.setattr(module.hashlib, "file_digest", count)
    return seen


def fault(bundle: Path, database: Database) -> Fault | None:
    return bundle_fault(
        bundle, sha256=SHA256, size_bytes=len(CONTENT), digests=database, reading=lambda: None
    )


def test_a_bundle_is_read_once_and_again_after_a_change_alone(
    bundle: Path, database: Database, reads: list[object]
) -> None:
    for _ in range(3):
        assert fault(bundle, database) is None
    assert len(reads) == 1
    os.utime(bundle, (1, 1))  # as who keeps it for another grace period does
    for _ in range(3):
        assert fault(bundle, database) is None
    assert len(reads) == 2
    database.forget_file(bundle)
    assert fault(bundle, database) is None
    assert len(reads) == 3


def flip(bundle: Path) -> None:
    with bundle.open("r+b") as file:
        file.seek(100)
        file.write(b"X")


def flip_and_hide(bundle: Path) -> None:
    before = bundle.stat()
    flip(bundle)
    os.utime(bundle, ns=(before.st_atime_ns, before.st_mtime_ns))


def make_directory(bundle: Path) -> None:
    bundle.unlink()
    bundle.mkdir()


def make_pipe(bundle: Path) -> None:
    bundle.unlink()
    os.mkfifo(bundle)


def make_loop(bundle: Path) -> None:
    bundle.unlink()
    bundle.symlink_to(bundle)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (flip, "its bundle is damaged (sha256 "),
        (flip_and_hide, "its bundle is damaged (sha256 "),
        (lambda bundle: os.truncate(bundle, 3000), "its bundle has 3,000 bytes, not 6,000 as"),
        (lambda bundle: os.truncate(bundle, 0), "its bundle has 0 bytes, not 6,000 as published"),
        (lambda bundle: bundle.write_bytes(CONTENT[::-1]), "its bundle is damaged (sha256 "),
        (make_directory, "its bundle is no file"),
        (make_pipe, "its bundle is no file"),
        (Path.unlink, "its bundle is missing"),
    ],
)
def test_damage_is_found_though_the_file_was_read_before(
    bundle: Path, database: Database, damage: Callable[[Path], None], told: str
) -> None:
    assert fault(bundle, database) is None
    damage(bundle)
    found = fault(bundle, database)
    assert found is not None
    assert found.damaged
    assert found.reason.startswith(told)


def test_a_bundle_that_this_user_may_not_read_is_not_called_damaged(
    open_path: Path, database: Database, unprivileged: Unprivileged
) -> None:
    bundle = open_path / "bundle"
    bundle.write_bytes(CONTENT)
    bundle.chmod(0)
    with unprivileged():
        found = fault(bundle, database)
    assert found == Fault("its bundle cannot be read (Permission denied)", damaged=False)


def test_a_file_system_that_cannot_be_reached_is_no_damage(
    bundle: Path, database: Database
) -> None:
    make_loop(bundle)  # stands for a stale handle, which nobody can make on demand
    with pytest.raises(NotWritable, match="look at the file system of the cache_dir"):
        fault(bundle, database)


def test_whoever_asks_may_end_the_reading(bundle: Path, database: Database) -> None:
    class Enough(Exception):
        pass

    def stop() -> None:
        raise Enough

    with pytest.raises(Enough):
        bundle_fault(bundle, sha256=SHA256, digests=database, reading=stop)
    assert fault(bundle, database) is None
