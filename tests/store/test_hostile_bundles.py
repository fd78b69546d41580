"""The bank of hostile bundles: each refused with one line, nothing written, memory bounded.

The cases stand in bundle_bank.py. Each lies under its right length and digest, as a publisher whose
key was stolen would offer it. All are read by one child of 400 MB, of which a frame may take 128.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..tree import Tree, tree_of
from .bundle_bank import CASES

CHILD = Path(__file__).with_name("hostile_child.py")
LIMIT_BYTES = 400_000_000


@dataclass(frozen=True)
class Refused:
    """How a case ended, and what stood around its directory before and after."""

    told: tuple[str, str, str, str]
    bundle: Path
    before: Tree
    after: Tree
    left: list[str]


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Refused]:
    """Every case read by one child."""
    root = tmp_path_factory.mktemp("bank")
    argv = [sys.executable, str(CHILD), str(LIMIT_BYTES)]
    found: dict[str, Refused] = {}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin and child.stdout
        for number, (name, case) in enumerate(CASES.items()):
            around = root / str(number)
            into = around / "deep" / "into"
            (around / "outside").mkdir(parents=True)
            (around / "outside" / "kept").write_bytes(b"kept")
            into.mkdir(parents=True)
            raw = case.build()
            bundle = around / "bundle.tar.zst"
            bundle.write_bytes(raw)
            before = tree_of(around, but=into)
            asked = ["unpack", str(bundle), str(into), hashlib.sha256(raw).hexdigest(), len(raw)]
            child.stdin.write(json.dumps(asked) + "\n")
            child.stdin.flush()
            told = json.loads(child.stdout.readline())
            left = [str(path) for path in into.rglob("*")]
            found[name] = Refused(tuple(told), bundle, before, tree_of(around, but=into), left)
        child.stdin.close()
    assert child.returncode == 0
    return found


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_with_one_line_and_nothing_is_written(
    refused: dict[str, Refused], name: str
) -> None:
    found = refused[name]
    how, error, code, line = found.told
    assert (how, error, code) == ("refused", "StoreCorrupt", "corrupt"), found.told
    assert line.startswith(f"{found.bundle}: ")
    assert line.isprintable() and len(line) < 800 + len(str(found.bundle))
    assert re.search(CASES[name].told, line), line
    assert found.left == []
    assert found.after == found.before
    for outside in ("/tmp/prewarm-outside", "/etc/cron.d/prewarm"):
        assert not os.path.lexists(outside)
