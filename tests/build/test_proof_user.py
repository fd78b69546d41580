"""A proof runs as another user where root builds and that user can read all it needs."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from prewarm.build.asking import Desk
from prewarm.build.proof_user import proof_user
from prewarm.config import Settings
from prewarm.errors import ConfigError
from prewarm.registry.declaration_file import read_declaration

DECLARATION = """\
[model]
loader = "python"
factory = "own:build"
device = "cpu"
interpreter = [{python}]
[compile]
dynamic = false
[[shapes]]
name = "rows"
args = [{{ dtype = "float32", shape = [1] }}]
"""

SYSTEM_PYTHON = shutil.which("python3", path=os.defpath)

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may change users"),
    pytest.mark.skipif(SYSTEM_PYTHON is None, reason="no python3 that every user can run"),
]


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user can enter, which pytest's own are not."""
    path = Path(tempfile.mkdtemp(prefix="prewarm-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def desk(place: Path) -> Desk:
    for name in ("checkpoint", "copy", "cache"):
        (place / name).mkdir()
    (place / "checkpoint" / "model.bin").write_bytes(b"weights")
    (place / "cache" / "artifact").write_bytes(b"artifact")
    file = place / "prewarm.toml"
    file.write_text(DECLARATION.format(python=f'"{SYSTEM_PYTHON}"'))
    return Desk(
        declaration=read_declaration(file),
        checkpoint=place / "checkpoint",
        copy=place / "copy",
        log=place / "log",
        memory_bytes=None,
        stop=threading.Event(),
    )


def settings(place: Path, user: str | None = None) -> Settings:
    return Settings(None, place / "cache", place / "state", "test", proof_user=user)


def test_nobody_proves_where_it_can_and_owns_the_cache(open_place: Path) -> None:
    made = desk(open_place)
    nobody = pwd.getpwnam("nobody").pw_uid
    assert proof_user(settings(open_place), made, open_place / "cache") == nobody
    assert (open_place / "cache" / "artifact").stat().st_uid == nobody


def test_a_checkpoint_that_only_root_reads_is_proven_as_root(open_place: Path) -> None:
    made = desk(open_place)
    (open_place / "checkpoint" / "model.bin").chmod(0o600)
    assert proof_user(settings(open_place), made, open_place / "cache") is None
    assert (open_place / "cache" / "artifact").stat().st_uid == 0


def test_a_user_asked_for_by_name_must_be_able_to(open_place: Path) -> None:
    made = desk(open_place)
    (open_place / "checkpoint" / "model.bin").chmod(0o600)
    with pytest.raises(ConfigError, match="nobody cannot run"):
        proof_user(settings(open_place, "nobody"), made, open_place / "cache")
    with pytest.raises(ConfigError, match="no user 'nosuchuser'"):
        proof_user(settings(open_place, "nosuchuser"), made, open_place / "cache")


def test_root_asked_for_by_name_stays_root(open_place: Path) -> None:
    assert proof_user(settings(open_place, "root"), desk(open_place), open_place / "cache") is None
