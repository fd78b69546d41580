"""A private directory edited by hand: the hook makes it right, ``drift`` refuses it in one line.

Its owner can put anything there. Nothing outside is touched, nothing waits, memory is bounded: the
commands run in one child of 400 MB, beside tests/store/test_hostile_bundles.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prewarm.plain_text import is_plain

from ..store.test_hostile_bundles import CHILD, LIMIT_BYTES
from ..tree import tree_of
from .conftest import FILES, Publisher

Spoil = Callable[[Path], None]
Run = Callable[..., tuple[int, str]]


def text(raw: bytes) -> Spoil:
    return lambda path: path.write_bytes(raw) and None


def edited(*path: str, to: object) -> Spoil:
    """Replace one value of a JSON file."""

    def edit(file: Path) -> None:
        found = json.loads(file.read_bytes())
        place = found
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to
        file.write_text(json.dumps(found))

    return edit


def events(*lines: bytes) -> Spoil:
    """Write a start report's file of some lines."""

    def write(report: Path) -> None:
        (report / "1.jsonl").write_bytes(b"\n".join(lines) + b"\n")

    return write


START = b'{"event": "start", "pid": 1, "at_s": 1.5}'
#: Each with whether ``drift`` can tell the start all the same.
REPORTS: dict[str, tuple[Spoil, bool]] = {
    "lines that are no JSON": (events(START, b"{", b"\xff\0", b"5", b"null", b"[]"), True),
    "times of two kinds": (events(START, b'{"event": "call", "at_s": "now"}'), False),
    "no time": (events(START, b'{"event": "call", "at_s": null}'), False),
    "event that is a list": (events(START, b'{"event": [1]}'), True),
    "point without a name": (events(START, b'{"event": "point"}'), False),
    "a line of 50,000 brackets": (events(START, b'{"event": ' + b"[" * 50_000), False),
    "a line of 10 MB": (events(START, b'{"event": "' + b"e" * (10 << 20) + b'"}'), True),
    "over the limit": (lambda report: _huge(report / "1.jsonl"), False),
    "a pipe": (lambda report: os.mkfifo(report / "1.jsonl"), False),
    "an endless device": (lambda report: (report / "1.jsonl").symlink_to("/dev/zero"), False),
    "a directory": (lambda report: (report / "1.jsonl").mkdir(), False),
}


def _huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 65 << 20)


def _without(listing: Path, name: str) -> None:
    """Take a name out of a listing, and spoil its file."""
    found = json.loads(listing.read_bytes())
    del found["files"][name]
    listing.write_text(json.dumps(found))
    (listing.parent / name).write_bytes(b"spoilt")


def instead(make: Spoil) -> Spoil:
    """Put something else in the place of a file."""

    def put(path: Path) -> None:
        path.unlink()
        make(path)

    return put


#: What may stand where a JSON file of ours should.
FORMS: dict[str, Spoil] = {
    "empty": text(b""),
    "no JSON": text(b"{"),
    "zeros": text(bytes(5000)),
    "no UTF-8": text(b'{"format": "\xff"}'),
    "null": text(b"null"),
    "a list": text(b"[1]"),
    "a number": text(b"5"),
    "100,000 brackets": text(b"[" * 100_000),
    "50,000 nested tables": text(b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    "number of 5,000 digits": text(b'{"format": ' + b"9" * 5000 + b"}"),
    "another format": edited("format", to=99),
    "over the limit": lambda path: os.truncate(path, 65 << 20),
    "link to an endless device": instead(lambda path: path.symlink_to("/dev/zero")),
    "link to nowhere": instead(lambda path: path.symlink_to("nowhere")),
    "pipe that nobody writes": instead(os.mkfifo),
}

FILE = "inductor/aa/one.py"
LISTINGS: dict[str, Spoil] = FORMS | {
    "files as a list": edited("files", to=[FILE]),
    "no files": edited("files", to={}),
    "a file less": lambda path: _without(path, FILE),
    "file without fields": edited("files", FILE, to=[]),
    "infinite size": edited("files", FILE, to=[float("inf"), 1, "a" * 64]),
    "size that is none": edited("files", FILE, to=[float("nan"), 1, "a" * 64]),
    "size as a text": edited("files", FILE, to=["many", 1, "a" * 64]),
    "huge size": edited("files", FILE, to=[10**30, 10**30, "a" * 64]),
    "another digest": edited("files", FILE, to=[3000, 1, "f" * 64]),
    "name that climbs": edited("files", "../../outside/kept", to=[4, 1, "a" * 64]),
    "absolute name": edited("files", "/etc/hostname", to=[4, 1, "a" * 64]),
    "name with a NUL": edited("files", "inductor/a\0b", to=[4, 1, "a" * 64]),
    "name that is no text": edited("files", "inductor/\udcff\ud800", to=[4, 1, "a" * 64]),
    "name that clears the screen": edited("files", "inductor/\x1b[2J", to=[4, 1, "a" * 64]),
    "endless name": edited("files", "inductor/" + "n" * 100_000, to=[4, 1, "a" * 64]),
    "other bundles": edited("bundles", to=["f" * 64]),
    "bundles as a number": edited("bundles", to=5),
    "another copy of torchside": edited("torchside", to="f" * 64),
}
ENV_FILES: dict[str, Spoil] = FORMS | {
    "no caches": edited("caches", to={}),
    "caches as a list": edited("caches", to=[]),
    "cache that is no text": edited("caches", "TORCHINDUCTOR_CACHE_DIR", to=5),
    "cache that climbs": edited("caches", "TORCHINDUCTOR_CACHE_DIR", to="../outside/inductor"),
    "absolute cache": edited("caches", "TORCHINDUCTOR_CACHE_DIR", to="/etc/inductor"),
    "cache with a NUL": edited("caches", "TORCHINDUCTOR_CACHE_DIR", to="a\0b/inductor"),
    "entries as a table": edited("entries", to={"a": 1}),
    "entry that is a number": edited("entries", to=[5]),
    "model that clears the screen": edited("entries", to=[{"model": "a\x1b[2J"}]),
    "environments as a list": edited("environments", to=[1]),
    "environment that is a text": edited("environments", to={"e": "cpu"}),
}


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Run a command in the child and return its exit code and what it told on standard error."""
    argv = [sys.executable, str(CHILD), str(LIMIT_BYTES)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:

        def run(*given: object) -> tuple[int, str]:
            words = [str(word) for word in given]
            if words[0] != "shim":
                words.insert(0, "command")
            assert child.stdin and child.stdout
            child.stdin.write(json.dumps(words) + "\n")
            child.stdin.flush()
            how, code, _, told = json.loads(child.stdout.readline())
            assert how == "ended", told
            return code, told

        yield run
        assert child.stdin
        child.stdin.close()
    assert child.returncode == 0


@pytest.fixture
def into(publish: Publisher, tmp_path: Path, run: Run) -> Path:
    """A private directory that a hook has filled."""
    publish()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_bytes(b"kept")
    hook(run, publish, tmp_path / "D")
    return tmp_path / "D"


def hook(run: Run, publish: Publisher, into: Path) -> None:
    words = ("--manifest", publish.cache_dir, "--into", into, "--on-miss", "fail")
    assert run("hook", "minilm/v1", *words) == (0, "")


def is_right(into: Path) -> None:
    [tree] = [path.parent for path in into.glob("*/listing.json")]
    assert {name: (tree / name).read_bytes() for name in FILES} == FILES
    listing = json.loads((tree / "listing.json").read_bytes())
    assert {name for name in listing["files"] if not name.startswith("shim/")} == set(FILES)
    env_json = json.loads((into / "env.json").read_bytes())
    assert env_json["caches"]["TORCHINDUCTOR_CACHE_DIR"] == f"{tree.name}/inductor"
    assert not list(into.glob(".filling-*"))


@pytest.mark.parametrize("name", LISTINGS)
def test_a_listing_edited_by_hand_is_made_anew(
    into: Path, publish: Publisher, run: Run, tmp_path: Path, name: str
) -> None:
    [listing] = into.glob("*/listing.json")
    LISTINGS[name](listing)
    before = tree_of(tmp_path, but=into)

    hook(run, publish, into)

    is_right(into)
    assert tree_of(tmp_path, but=into) == before


@pytest.mark.parametrize("name", ENV_FILES)
def test_an_env_json_edited_by_hand_is_refused_by_drift_and_made_anew_by_the_hook(
    into: Path, publish: Publisher, run: Run, tmp_path: Path, name: str
) -> None:
    ENV_FILES[name](into / "env.json")
    before = tree_of(tmp_path, but=into)

    code, told = run("drift", into)
    assert code == 1
    [line] = told.splitlines()
    assert line.startswith(f"prewarm: error: {into}")
    assert is_plain(line) and "internal" not in line

    hook(run, publish, into)
    is_right(into)
    assert tree_of(tmp_path, but=into) == before


@pytest.mark.parametrize("name", ENV_FILES)
def test_an_env_json_edited_by_hand_never_keeps_a_server_from_starting(
    into: Path, run: Run, name: str
) -> None:
    ENV_FILES[name](into / "env.json")
    unusable, told = run("shim", into)
    if name in FORMS:
        assert unusable
        [line] = told.splitlines()
        assert line.startswith(f"prewarm: {into}/env.json cannot be used: ")


@pytest.mark.parametrize("name", REPORTS)
def test_a_start_report_that_is_none_is_told_by_drift(into: Path, run: Run, name: str) -> None:
    spoil, is_told = REPORTS[name]
    report = into / "reports" / f"{1 << 62}-1"
    report.mkdir()
    spoil(report)
    code, told = run("drift", into)
    assert code == (0 if is_told else 1), told
    if not is_told:
        [line] = told.splitlines()
        assert line.startswith(f"prewarm: error: {report}: is no start report (")
        assert is_plain(line)
