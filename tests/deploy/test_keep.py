"""What a reader keeps between hooks, and what it believes of it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from prewarm.deploy.keep import Keep, Memory, keep_for
from prewarm.deploy.seen import Mark
from prewarm.errors import NotWritable

SOURCE = "http://gpu-1:7791"
BODY = b'{"manifests":[]}'
MEMORY = Memory(
    {"gpu-1": Mark("2027-01-15T08:00:00.000Z", 3)}, '"tag"', hashlib.sha256(BODY).hexdigest()
)


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    made = keep_for({"XDG_CACHE_HOME": str(tmp_path)}, tmp_path / "D")
    assert made == Keep(tmp_path / "prewarm" / "hook", lasting=True)
    return made


def memory_file(keep: Keep) -> Path:
    (found,) = (keep.place / "seen").glob("*.json")
    return found


def test_what_is_remembered_is_known_again(keep: Keep) -> None:
    keep.remember(SOURCE, MEMORY, BODY)

    assert keep.memory(SOURCE) == MEMORY
    assert keep.answer(SOURCE, MEMORY) == BODY
    assert keep.memory("http://gpu-2:7791") == Memory(), "of another source nothing is known"


@pytest.mark.parametrize("data", [b"", b"{", b"null", b"[1]", b'{"format":2}', b"[" * 5000])
def test_a_damaged_memory_is_none(keep: Keep, data: bytes) -> None:
    keep.remember(SOURCE, MEMORY, BODY)
    memory_file(keep).write_bytes(data)

    assert keep.memory(SOURCE) == Memory()


def test_an_answer_that_is_not_as_it_was_is_none(keep: Keep) -> None:
    keep.remember(SOURCE, MEMORY, BODY)
    (answer,) = (keep.place / "seen").glob("*.manifests")
    answer.write_bytes(b'{"manifests":[1]}')

    assert keep.answer(SOURCE, MEMORY) is None
    answer.unlink()
    assert keep.answer(SOURCE, MEMORY) is None


def test_what_others_can_write_is_not_believed(keep: Keep) -> None:
    keep.remember(SOURCE, MEMORY, BODY)
    keep.place.chmod(0o777)

    assert keep.memory(SOURCE) == Memory()
    with pytest.raises(NotWritable, match="can be written by others"):
        keep.require_own()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_the_place_of_another_user_is_not_believed(keep: Keep) -> None:
    keep.remember(SOURCE, MEMORY, BODY)
    os.chown(keep.place, 1234, 1234)

    assert keep.memory(SOURCE) == Memory()
    with pytest.raises(NotWritable):
        keep.require_own()


def test_a_link_is_not_believed(keep: Keep, tmp_path: Path) -> None:
    keep.remember(SOURCE, MEMORY, BODY)
    keep.place.rename(tmp_path / "elsewhere")
    keep.place.symlink_to(tmp_path / "elsewhere")

    assert keep.memory(SOURCE) == Memory()
    with pytest.raises(NotWritable):
        keep.require_own()


@pytest.mark.parametrize("environ", [{}, {"HOME": "/dev/null"}, {"HOME": "relative"}])
def test_without_a_home_it_is_in_the_directory(tmp_path: Path, environ: dict[str, str]) -> None:
    into = tmp_path / "D"

    keep = keep_for(environ, into)

    assert keep == Keep(into / ".prewarm", lasting=False)
    keep.remember(SOURCE, MEMORY, BODY)
    assert not into.exists(), "it is made by who fills it"
    into.mkdir()
    keep.remember(SOURCE, MEMORY, BODY)
    assert keep.memory(SOURCE) == MEMORY


def test_nothing_is_remembered_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / ".prewarm").write_bytes(b"")
    keep = Keep(tmp_path / ".prewarm", lasting=False)

    keep.remember(SOURCE, MEMORY, BODY)

    assert keep.memory(SOURCE) == Memory()
