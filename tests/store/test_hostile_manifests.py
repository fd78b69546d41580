"""The bank of hostile manifests: each refused with one line, memory bounded.

The cases stand in manifest_bank.py. Each is read twice: as from a directory that is trusted as it
is, and as from one where a key must have signed. All are read by one child of 700 MB: a file of the
largest size and its text take 130 each, and cryptography's libraries the rest of the start.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prewarm.plain_text import is_plain
from prewarm.store.manifest_files import read_manifest
from prewarm.store.manifest_signed import read_signed_manifest
from prewarm.store.signing import load_or_create_key

from ..tree import tree_of
from .manifest_bank import PLAIN, SIGNED, Good
from .test_hostile_bundles import CHILD

LIMIT_BYTES = 700_000_000

Ask = Callable[..., list[str]]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """The child that reads all of them."""
    argv = [sys.executable, str(CHILD), str(LIMIT_BYTES)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin and child.stdout

        def ask(*words: str) -> list[str]:
            assert child.stdin and child.stdout
            child.stdin.write(json.dumps(words) + "\n")
            child.stdin.flush()
            told: list[str] = json.loads(child.stdout.readline())
            return told

        yield ask
        child.stdin.close()
    assert child.returncode == 0


@pytest.fixture
def good(tmp_path: Path, record: Callable[..., dict[str, object]]) -> Good:
    return Good(
        signed={
            "format": 1,
            "builder": "gpu-1",
            "generation": 42,
            "generated_at": "2027-01-15T08:00:00.000Z",
            "version": "0.1.0",
            "environments": {"0123456789abcdef": {"torch": "2.13.0", "cxx": None}},
            "entries": [{**record(calls=1), "model": "minilm/v1", "aliases": ["minilm/latest"]}],
        },
        key=load_or_create_key(tmp_path / "key"),
        other=load_or_create_key(tmp_path / "other"),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    directory = tmp_path / "cache" / "manifests"
    directory.mkdir(parents=True)
    return directory / "gpu-1.json"


def test_what_the_cases_change_is_read(good: Good, path: Path) -> None:
    path.write_bytes(good.file())
    assert read_manifest(path).manifest == read_signed_manifest(path, [good.key.public])


def _is_refused(told: list[str], path: Path, expected: str) -> None:
    how, error, code, line = told
    assert (how, error) == ("refused", "ManifestUnavailable"), told
    assert code in ("bad_manifest", "not_trusted"), told
    assert line.startswith(f"{path}: ")
    assert is_plain(line) and len(line) < 3000
    assert re.search(expected, line), line


@pytest.mark.parametrize("name", PLAIN)
def test_it_is_refused_from_a_directory_that_is_trusted(
    good: Good, path: Path, ask: Ask, name: str
) -> None:
    path.write_bytes(PLAIN[name].build(good))
    before = tree_of(path.parents[1])
    _is_refused(ask("manifest", str(path)), path, PLAIN[name].told)
    assert tree_of(path.parents[1]) == before


@pytest.mark.parametrize("name", SIGNED)
def test_it_is_refused_where_a_key_must_have_signed(
    good: Good, path: Path, ask: Ask, name: str
) -> None:
    path.write_bytes(SIGNED[name].build(good))
    before = tree_of(path.parents[1])
    _is_refused(ask("signed", str(path), good.key.public), path, SIGNED[name].told)
    assert tree_of(path.parents[1]) == before
