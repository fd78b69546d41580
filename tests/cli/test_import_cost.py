"""What a start imports: hook and status stay fast by what they leave out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from prewarm.cli.main import COMMANDS
from prewarm.store.database import Database
from prewarm.store.status import Status

#: Each takes 30 ms to 2 s to import.
SLOW = {"pydantic", "rich", "cryptography", "sqlite_utils", "torch", "psutil", "numpy", "asyncio"}
#: A hook whose directory is right unpacks nothing and reads no checkpoint.
UNPACKING = {"zstandard", "tarfile", "prewarm.registry"}

AT = "2027-01-15T08:00:00.000Z"


@pytest.fixture
def imported(tmp_path: Path) -> Callable[..., set[str]]:
    """Run a command to its end in a fresh Python and return every module that it imported."""

    def run(*arguments: object) -> set[str]:
        code = (
            "import json, sys; from prewarm.cli.main import main; code = main(sys.argv[2:]);"
            "open(sys.argv[1], 'w').write(json.dumps([code, *sys.modules]))"
        )
        told = tmp_path / "told"
        subprocess.run(
            [sys.executable, "-c", code, told, *map(str, arguments)],
            capture_output=True,
            check=True,
        )
        code, *modules = json.loads(told.read_text())
        assert code == 0
        return set(modules)

    return run


def test_status_of_a_state_imports_nothing_slow(
    imported: Callable[..., set[str]], database: Database, state_dir: Path
) -> None:
    database.put_entry("m", "e", at=AT, status=Status.FAILED, reason="r", code="c")

    assert not imported("status", "--state-dir", state_dir) & (SLOW | UNPACKING)
    assert not imported("status", "--state-dir", state_dir, "--json") & (SLOW | UNPACKING)


def test_a_hook_that_misses_imports_nothing_slow(
    imported: Callable[..., set[str]], tmp_path: Path
) -> None:
    modules = imported("hook", "m", "--manifest", tmp_path, "--env-file", tmp_path / "env")

    assert not modules & (SLOW | UNPACKING)


def test_listing_and_completing_commands_imports_none_of_them(
    imported: Callable[..., set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = {f"prewarm.cli.{name}" for name in COMMANDS}

    assert not imported("--help") & (commands | SLOW)
    assert not imported("--version") & (commands | SLOW)

    monkeypatch.setenv("_PREWARM_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "prewarm ")
    monkeypatch.setenv("COMP_CWORD", "1")
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "prewarm.cli"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [f"plain,{name}" for name in COMMANDS]
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "click" in modules
    assert not modules & (commands | SLOW)
